"""MuLaN: text and music in one space; and MusicLM, music from text."""
