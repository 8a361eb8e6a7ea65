"""From files to batches: manifests, audio and images, datasets, samplers and collation.

Nothing heavy is imported here; import what you need from its own file, for example
`from madrigal.data.dataset import SoundDataset`.
"""
