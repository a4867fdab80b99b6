import { defineTexts } from "../../i18n";

export const texts = defineTexts(
  {
    title: "GPU use, for a wall",
    top: "Most expensive idle workloads",
    "top-unpriced": "Most idle workloads",
    "top-empty": "Nothing is idle. Every GPU that is held is at work.",
    map: "All GPUs by node",
    "days-cost": "{currency}, {days} d",
    hours: "GPU-hours, {days} d",
    "gpu-count": "{gpus} × {model}",
    partly: "in part",
    offline: "No connection to the analyzer since {time}",
    "as-of": "as of {time}",
    complete: "data complete {percent}",
    leave: "Esc leaves wall mode",
  },
  {
    title: "GPU 使用大屏",
    top: "花费最高的空闲工作负载",
    "top-unpriced": "空闲最多的工作负载",
    "top-empty": "没有空闲：所有被占用的 GPU 都在工作。",
    map: "全部 GPU（按节点）",
    "days-cost": "{currency}，{days} 天",
    hours: "GPU 小时，{days} 天",
    "gpu-count": "{gpus} × {model}",
    partly: "部分空闲",
    offline: "自 {time} 起与分析器失去连接",
    "as-of": "截至 {time}",
    complete: "数据完整度 {percent}",
    leave: "按 Esc 退出大屏模式",
  },
);
