"""How an `ApiError` travels over gRPC, both directions.

The call ends with the canonical code and with `grpc-status-details-bin`: a `google.rpc.Status`
that holds an Any of meta/v1 `Status`, so a client of plain gRPC reads the same Status that REST
answers.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError
from google.rpc import status_pb2

from podyard.api import errors
from podyard.api.errors import ApiError
from podyard.api.types import Status

DETAILS_KEY = "grpc-status-details-bin"

# Canonical codes that a server or the transport may answer without details.
_BY_GRPC_CODE: dict[int, type[ApiError]] = {
    3: errors.BadRequest,
    4: errors.Timeout,
    5: errors.NotFound,
    6: errors.AlreadyExists,
    7: errors.Forbidden,
    8: errors.RequestEntityTooLarge,
    10: errors.Conflict,
    12: errors.MethodNotAllowed,
    14: errors.Unavailable,
    16: errors.Unauthorized,
}


def to_details(error: ApiError) -> bytes:
    """The value of `grpc-status-details-bin`."""
    status = status_pb2.Status(code=error.grpc_code, message=error.message)
    status.details.add().Pack(error.to_status())
    details: bytes = status.SerializeToString()
    return details


def from_details(code: int, message: str, details: bytes | None) -> ApiError:
    """The error of a call that ended with `code`, as the server raised it where it says so."""
    if details:
        try:
            outer = status_pb2.Status.FromString(details)
            status = Status()
            if any(item.Unpack(status) for item in outer.details):
                return errors.from_status(status)
        except DecodeError:
            pass  # another server's details: the code still says enough
    return _BY_GRPC_CODE.get(code, errors.InternalError)(message)
