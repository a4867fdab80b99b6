"""`kubernetes.*`: the API server that names the owners of pods."""

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, Field

from gpusteward.analyzer.setting_values import SECTION, check_url


class KubernetesSettings(BaseModel):
    """The API server that owners of pods are read from; nothing is written there."""

    model_config = SECTION

    owners: Literal["auto", "always", "never"] = Field(
        default="auto", description="Whether owners are read: auto (where there is an API server), always or never."
    )
    api_url: Annotated[str, AfterValidator(check_url)] = Field(
        default="", description="URL of the API server, such as a kubectl proxy; empty: that of this cluster."
    )
    token_file: str = Field(
        default="",
        description="File with the bearer token for kubernetes.api_url, sent over TLS only; empty: that of the "
        "pod's service account, if there is one.",
    )
    ca_file: str = Field(
        default="",
        description="File with the CA certificates of kubernetes.api_url; empty: that of the pod's service account, or "
        "the system's certificates with a kubernetes.token_file or outside of a pod.",
    )
    cluster: str = Field(
        default="",
        description="Name of the cluster of that API server, as the series name it. Needed where the engine has or "
        "had several clusters: only pods of this one are looked up. Also says that pods without uid and with nodes in "
        "an unknown form are those of this cluster.",
    )
    timeout: ClassVar[float] = 10
    """Seconds one request may take."""
