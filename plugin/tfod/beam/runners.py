"""The runners that a user may name, and Beam's own options."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from tfod.errors import TfodError

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from apache_beam.options.pipeline_options import PipelineOptions

DIRECT = "DirectRunner"
DASK = "DaskRunner"
PYSPARK = "PySparkRunner"
_PORTABLE = "PortableRunner"
_SECONDS_TO_CONNECT = 10
_HELP = frozenset({"-h", "--help"})
_BEAMS_OPTIONS = "Beam's options are described at https://beam.apache.org/documentation/"
_DASK_PARTITIONS = ("--dask_npartitions", "--dask_partition_size")
RUNNERS = (
    DIRECT,
    _PORTABLE,
    "FlinkRunner",
    "SparkRunner",
    "DataflowRunner",
    DASK,
    PYSPARK,
)
# They ask a job server for options that Beam in Python does not know.
_WITH_FURTHER_OPTIONS = (_PORTABLE, "FlinkRunner", "SparkRunner")
# Runners that Beam does not know by name.
_CLASSES = {
    DASK: "apache_beam.runners.dask.dask_runner.DaskRunner",
    PYSPARK: "beam_pyspark_runner.pyspark_runner.PySparkRunner",
}
# Runners that do not come with apache-beam alone, and what they come with.
_INSTALLED_BY = {
    "DataflowRunner": "pip install 'apache-beam[gcp]'",
    DASK: "pip install 'apache-beam[dask]'",
    # It asks for a Beam of 2023, though it runs with later ones.
    PYSPARK: "pip install pyspark psutil && pip install --no-deps beam-pyspark-runner",
}


def known_runner(name: str) -> str:
    """Beam's name of a runner.

    Raises:
        TfodError: it is unknown.
    """
    for known in RUNNERS:
        if name.lower() in (known.lower(), known.removesuffix("Runner").lower()):
            return known
    raise TfodError(f"--runner {name}: unknown; known are {', '.join(RUNNERS)}")


def is_on_this_machine(runner: str) -> bool:
    """Whether all of a runner's processes are children of ours."""
    return runner == DIRECT


def make_runner(runner: str, arguments: Sequence[str]) -> tuple[Any, PipelineOptions]:
    """Beam's object for the runner, and for its options.

    The DirectRunner is its FnApiRunner: Beam's own choice would try Prism first, for which it
    downloads a program.

    Raises:
        TfodError: Beam was installed without it; an option is unknown, which Beam would pass over,
            or has a value that it cannot have.
    """
    from apache_beam.runners.runner import create_runner

    if runner == DIRECT:
        options = _parse(runner, arguments)
        _require_workers(options)
        made = _direct_runner(options)
        _require_valid(made, options)
        return made, options
    try:
        made = create_runner(
            _CLASSES.get(runner, runner)
        )  # before the options: a runner's module brings its own
    except ImportError as error:
        fix = f"; {_INSTALLED_BY[runner]}" if runner in _INSTALLED_BY else ""
        raise TfodError(f"--runner {runner}: {str(error).splitlines()[0]}{fix}") from None
    if runner == DASK and not any(one.startswith(_DASK_PARTITIONS) for one in arguments):
        # Its default is 128 elements a partition, and ours are whole shards.
        arguments = [*arguments, "--dask_npartitions=16"]
    options = _parse(runner, arguments)
    _require_job_server(runner, options)
    _require_valid(made, options)
    return made, options


def _direct_runner(options: PipelineOptions) -> Any:
    from apache_beam.portability.api import beam_provision_api_pb2
    from apache_beam.runners.portability.fn_api_runner import fn_runner
    from apache_beam.runners.portability.portable_runner import JobServiceHandle

    # Worker processes learn from it how to reach file systems, for example.
    told = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    information = beam_provision_api_pb2.ProvisionInfo(pipeline_options=told)
    return fn_runner.FnApiRunner(provision_info=fn_runner.ExtendedProvisionInfo(information))


def _parse(runner: str, arguments: Sequence[str]) -> PipelineOptions:
    from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions

    if not _HELP.isdisjoint(arguments):
        raise TfodError(f"-- --help: {_BEAMS_OPTIONS}")
    parsers: list[ArgumentParser] = []

    def see(parser: ArgumentParser) -> None:
        # Beam makes the parser, whose errors would end the process with a page of usage.
        parser.error = _refuse  # type: ignore[method-assign]
        parsers.append(parser)

    options = PipelineOptions(list(arguments))
    options.get_all_options(add_extra_args_fn=see)
    _, unknown = parsers[0].parse_known_args(list(arguments))
    stray = [one for one in unknown if not one.startswith("-")]
    if unknown and runner not in _WITH_FURTHER_OPTIONS:
        raise TfodError(f"-- {unknown[0]}: {runner} has no such option")
    if stray and stray == unknown:
        raise TfodError(f"-- {stray[0]}: not one of Beam's options")
    if options.view_as(StandardOptions).runner:
        raise TfodError("-- --runner: name the runner in front of --")
    return options


def _require_workers(options: PipelineOptions) -> None:
    from apache_beam.options.pipeline_options import DirectOptions

    workers = options.view_as(DirectOptions).direct_num_workers
    if workers < 0:
        raise TfodError(
            f"-- --direct_num_workers: {workers} is not a number of workers; "
            "0 means one for each CPU"
        )


def _require_valid(made: Any, options: PipelineOptions) -> None:
    """What Beam says of options that do not go together, as one line."""
    from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator

    wrong = PipelineOptionsValidator(options, made).validate()
    if wrong:
        raise TfodError(f"-- {' '.join(' '.join(wrong).split())}")


def _require_job_server(runner: str, options: PipelineOptions) -> None:
    """Beam itself would wait for ever for one that is not there."""
    from apache_beam.options.pipeline_options import PortableOptions

    given = options.view_as(PortableOptions)
    endpoint = given.job_endpoint
    if not endpoint and runner == _PORTABLE:
        raise TfodError(
            f"--runner {runner}: no job server is named; -- --job_endpoint=host:port names one"
        )
    if not endpoint or endpoint == "embed":
        return
    host, _, port = endpoint.rpartition(":")
    if not host or not port.isdigit():
        raise TfodError(f"-- --job_endpoint: {endpoint} is not host:port")
    seconds = min(given.job_server_timeout, _SECONDS_TO_CONNECT)
    try:
        socket.create_connection((host.strip("[]"), int(port)), seconds).close()
    except OSError as error:
        reason = error.strerror or error
        raise TfodError(
            f"-- --job_endpoint: no job server answers at {endpoint} ({reason})"
        ) from None
    _ask_job_server(endpoint, seconds)


def _ask_job_server(endpoint: str, seconds: int) -> None:
    """Something listens there: see that it is a job server, by what Beam will ask it first."""
    import grpc
    from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

    with grpc.insecure_channel(endpoint) as channel:
        server = beam_job_api_pb2_grpc.JobServiceStub(channel)
        request = beam_job_api_pb2.DescribePipelineOptionsRequest()
        try:
            server.DescribePipelineOptions(request, timeout=seconds)
        except grpc.RpcError as error:
            raise TfodError(
                f"-- --job_endpoint: no job server answers at {endpoint} "
                f"({error.code().name}: {' '.join(error.details().split())})"
            ) from None


def _refuse(message: str) -> NoReturn:
    raise TfodError(f"-- {message.removeprefix('argument ')}")
