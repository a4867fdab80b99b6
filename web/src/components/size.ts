import { useLayoutEffect, useRef, useState } from "preact/hooks";
import type { RefObject } from "preact";

/** The size of an element, also after it changes. */
export function useSize<E extends HTMLElement>(): [RefObject<E>, { readonly width: number; readonly height: number }] {
  const element = useRef<E>(null);
  const [size, setSize] = useState({ width: 0, height: 0 });
  useLayoutEffect(() => {
    const node = element.current;
    if (!node) return;
    const measure = () => setSize((before) =>
      before.width === node.clientWidth && before.height === node.clientHeight ? before : { width: node.clientWidth, height: node.clientHeight });
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(node);
    return () => observer.disconnect();
  }, []);
  return [element, size];
}
