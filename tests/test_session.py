"""Sessions: phases run with checked inputs, models are shared and given back, requests repeat exactly."""

import threading
from pathlib import Path

import pytest
import torch

from mizuoto_runtime.errors import Cancelled, InputError, ModelFileError, NotEnoughMemory, UnknownName
from mizuoto_runtime.library import ModelLibrary
from mizuoto_runtime.memory.phase import PhaseContext
from mizuoto_runtime.memory.ram import GB, Ram
from mizuoto_runtime.session import Session, SpeakRequest
from mizuoto_runtime.settings import resolve
from mizuoto_runtime.types import Artifact, Audio, Callbacks, Progress
from tests.engines.lmcodec.test_lmcodec import ENGINES as LMCODEC


@pytest.fixture
def session(tmp_path: Path) -> Session:
    return Session(resolve(environment={}), ModelLibrary([tmp_path]))


def speak(session: Session, text: str, **more: object) -> Audio:
    request = SpeakRequest(text=text, **more)  # type: ignore[arg-type]
    return session.speak(session.find("dummy", "tones"), request).audio


def test_the_same_seed_gives_the_same_samples_and_another_seed_others(session: Session) -> None:
    noisy = {"options": {"noise": 0.5}}
    once = speak(session, "abc", seed=1, **noisy).samples
    assert torch.equal(once, speak(session, "abc", seed=1, **noisy).samples)
    assert not torch.equal(once, speak(session, "abc", seed=2, **noisy).samples)


def test_the_global_generator_is_left_alone(session: Session) -> None:
    before = torch.get_rng_state()
    speak(session, "abc", options={"noise": 0.5})
    assert torch.equal(before, torch.get_rng_state())


def test_meta_says_what_was_asked_done_and_held(session: Session) -> None:
    files = session.find("dummy", "tones")
    output = session.speak(files, SpeakRequest(text="abc", seed=5, options={"tone_seconds": 0.05}))
    meta = output.meta
    assert output.audio.samples.shape == (1, 3600)
    assert (meta["duration_seconds"], meta["sample_rate_hz"], meta["length_samples"]) == (0.15, 24000, 3600)
    assert meta["phases"][0]["options"] == {"tone_seconds": 0.05, "noise": 0.0}  # type: ignore[index]
    assert meta["phases"][0]["seed"] == 5  # type: ignore[index]
    assert meta["memory"] == {"streamed_mb": 0.0, "loaded_mb": 0.0, "size_mb": 0.0}


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_sound_that_is_no_numbers_is_refused(session: Session, wrong: float) -> None:
    loaded = session.open(session.find("dummy", "tones"))
    with torch.no_grad():
        loaded.handles[0].module.loudness[0] = wrong  # type: ignore[index, operator]
    with pytest.raises(ModelFileError, match=r"Tones: .* of 3,840 samples aren't finite .*compute\.dtype to float32"):
        speak(session, "ab")
    assert not loaded.busy


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5, True, "1"])
def test_a_seed_out_of_range_is_refused(session: Session, seed: object) -> None:
    with pytest.raises(InputError, match="seed"):
        speak(session, "abc", seed=seed)


def test_the_largest_seed_works(session: Session) -> None:
    assert speak(session, "a", seed=2**64 - 1).samples.shape[0] == 1


@pytest.mark.parametrize("text", ["", " \n\t", "\ud800 half", "bell \x07", 7, None])
def test_texts_that_cannot_be_spoken_are_refused(session: Session, text: object) -> None:
    with pytest.raises(InputError):
        speak(session, text)  # type: ignore[arg-type]


def test_inputs_are_checked_against_the_ports(session: Session) -> None:
    files = session.find("dummy", "tones")
    with pytest.raises(UnknownName, match="Did you mean 'text'"):
        session.run_phase(files, "tones", {"texts": "a"}, {})
    with pytest.raises(InputError, match="needs the input 'text'"):
        session.run_phase(files, "tones", {}, {})
    with pytest.raises(UnknownName, match="phase of engine 'dummy'"):
        session.run_phase(files, "tone", {"text": "a"}, {})


def test_an_artifact_of_another_engine_is_refused(session: Session, tmp_path: Path) -> None:
    (tmp_path / "piper").mkdir()
    (tmp_path / "piper/v.onnx").write_bytes(b"")
    foreign = Artifact("MIZUOTO_OTHER_ENCODING", object())
    with pytest.raises(InputError, match="takes ENCODING, not MIZUOTO_OTHER_ENCODING"):
        session.run_phase(session.find("piper", "v"), "decode", {"encoding": foreign}, {})


def test_a_model_is_loaded_once_and_let_go_when_others_are_used(session: Session) -> None:
    files = session.find("dummy", "tones")
    first = session.open(files)
    assert session.open(files) is first
    session.close()
    assert session.open(files) is not first


def test_threads_share_one_model_and_agree(session: Session) -> None:
    results: list[Audio] = []
    threads = [threading.Thread(target=lambda: results.append(speak(session, "hello", seed=3))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8
    assert all(torch.equal(results[0].samples, audio.samples) for audio in results)


def test_progress_comes_step_by_step_and_a_cancel_ends_the_phase(session: Session) -> None:
    steps: list[Progress] = []

    def check() -> None:
        if len(steps) == 3:
            raise Cancelled("enough")

    files = session.find("dummy", "tones")
    with pytest.raises(Cancelled):
        session.speak(files, SpeakRequest(text="abcdefgh"), Callbacks(steps.append, check))
    assert [step.done for step in steps] == [0, 1, 2]
    assert all(not handle.busy for handle in session.open(files).handles)


def test_models_that_nobody_uses_are_let_go_of_after_a_while(tmp_path: Path) -> None:
    session = Session(resolve({"compute.unload_after_minutes": "1"}, {}), ModelLibrary([tmp_path]))
    loaded = session.open(session.find("dummy", "tones"))
    assert session.unload_idle() == 0
    loaded.last_used_s -= 61
    assert session.unload_idle() == 1
    assert session.open(session.find("dummy", "tones")) is not loaded


def test_where_ram_is_short_idle_models_go_but_not_the_one_that_was_opened(tmp_path: Path) -> None:
    session = Session(resolve({}, {}), ModelLibrary([tmp_path]), engines=LMCODEC)
    first = session.open(session.find("lmcodec", "tied"))
    session.manager.memory.read = lambda: Ram(8 * GB, 0, "test")
    second = session.open(session.find("lmcodec", "untied-bf16"))
    session.manager.memory.read = lambda: Ram(8 * GB, 8 * GB, "test")
    assert session.open(session.find("lmcodec", "untied-bf16")) is second
    assert session.open(session.find("lmcodec", "tied")) is not first


def test_there_may_be_no_model_to_let_go_of_where_ram_is_short(session: Session) -> None:
    session.manager.memory.read = lambda: Ram(8 * GB, 0, "test")
    assert session.relieve_ram() == 0


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("2 GiB"), MemoryError(), NotEnoughMemory("2 GiB")])
def test_after_a_job_ran_out_of_memory_in_whatever_way_nothing_idle_stays_on_the_device(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(resolve({"compute.simulate_vram_mb": "4096"}, {}), ModelLibrary([]), engines=LMCODEC)
    files = session.find("lmcodec", "tied")
    session.speak(files, SpeakRequest(text="Hi."))
    handles = session.open(files).handles
    assert session.manager.device.held_bytes() > 0

    def prompt(ctx: PhaseContext, model: object, *, text: str) -> None:
        ctx.use(handles, 0).__enter__()
        raise error

    monkeypatch.setattr(LMCODEC.module(LMCODEC.spec("lmcodec")), "prompt", prompt)
    with pytest.raises(NotEnoughMemory):
        session.speak(files, SpeakRequest(text="Hi."))
    assert session.manager.device.held_bytes() == 0


def test_a_server_lets_go_of_idle_models_but_not_of_the_one_that_is_asked_for(tmp_path: Path) -> None:
    session = Session(resolve({"compute.unload_after_minutes": "1"}, {}), ModelLibrary([tmp_path]), engines=LMCODEC)
    session.manager.host.serves = True
    files = [session.find("lmcodec", name) for name in ("tied", "untied-bf16")]
    wanted, other = (session.open(each) for each in files)
    for loaded in (wanted, other):
        loaded.last_used_s -= 61
    session.run_phase(files[0], "prompt", {"text": "Hi."}, {})
    assert session.open(files[0]) is wanted
    assert session.open(files[1]) is not other
