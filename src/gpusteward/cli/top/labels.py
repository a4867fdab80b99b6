"""What the lines of a chart are called."""

from gpusteward.core.messages import Message

CORE = Message("core", "核心")
MEMORY = Message("memory", "显存")
POWER = Message("power", "功率")
SM = Message("SM", "SM")
