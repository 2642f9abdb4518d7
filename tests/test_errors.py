"""Messages that stay readable."""

from mizuoto_runtime.errors import InputError, UnknownName


def test_few_names_are_all_listed_and_of_many_the_nearest() -> None:
    assert str(UnknownName("engine", "c", ["b", "a"])) == "unknown engine 'c'. Known: a, b"
    many = [f"voice-{number}" for number in range(500)]
    message = str(UnknownName("model", "voice-77x", many))
    assert "Did you mean 'voice-77'?" in message
    assert message.endswith("and 488 more")
    assert len(message) < 400


def test_half_a_surrogate_pair_can_be_written() -> None:
    str(InputError("a \ud800 b")).encode("utf-8")
