"""How much of a text was misread."""


def character_errors(said: str, read: str) -> int:
    """The fewest characters to change, add or take away to turn one into the other."""
    row = list(range(len(read) + 1))
    for number, character in enumerate(said, 1):
        diagonal, row[0] = row[0], number
        for place, other in enumerate(read, 1):
            diagonal, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, diagonal + (character != other))
    return row[-1]
