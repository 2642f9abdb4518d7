"""Texts of which normalising leaves nothing."""

import pytest

from mizuoto_runtime.errors import InputError
from mizuoto_runtime.session import Session, SpeakRequest


@pytest.mark.parametrize("control", ["", "an old man"])
@pytest.mark.parametrize("text", ["```\ncode\n```", "`code`", "<b>", " <a href='x'></a> "])
def test_a_text_of_which_normalising_leaves_nothing_is_refused(
    session: Session, text: str, control: str
) -> None:
    request = SpeakRequest(text=text, options={"normalize": True, "control": control})
    with pytest.raises(InputError, match="nothing is left of the text once it is normalised"):
        session.speak(session.find("voxcpm", "v2"), request)
