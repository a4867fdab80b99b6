"""What the lines of a chart are called."""

from gpusteward.cli.languages import Said

CORE = Said("core", "核心")
MEMORY = Said("memory", "显存")
POWER = Said("power", "功率")
SM = Said("SM", "SM")
