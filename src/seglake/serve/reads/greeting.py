"""ApiVersions: what a client asks first, and tells of itself (KIP-35, KIP-511)."""

from __future__ import annotations

import re
from typing import Any

from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from seglake.serve.api import Api
from seglake.serve.codes import Code
from seglake.serve.connection import Connection

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def _handle(request: Any, connection: Connection) -> Any:
    error = Code.NONE
    if request is None:  # of a version that is too new; the client then takes one of these
        error = Code.UNSUPPORTED_VERSION
    elif connection.version >= 3:
        names = (request.client_software_name, request.client_software_version)
        if all(map(_SOFTWARE.fullmatch, names)):
            connection.software = " ".join(names)
        else:
            error = Code.INVALID_REQUEST
    if error:
        connection.count_error("ApiVersions", error)
    one = ApiVersionsResponse.ApiVersion
    apis = connection.api_keys.values() if error != Code.INVALID_REQUEST else ()
    keys = [one(api_key=a.key, min_version=a.low, max_version=a.high) for a in apis]
    return ApiVersionsResponse(error_code=error, api_keys=keys, throttle_time_ms=0)


API = Api(ApiVersionsRequest, _handle, before_login=True)
