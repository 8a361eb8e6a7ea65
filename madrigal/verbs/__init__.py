"""The verbs of the `madrigal` command, one small file a group; heavy imports wait inside the functions."""
