"""F5-TTS and E2-TTS: speech by flow matching, in the voice of a reference."""
