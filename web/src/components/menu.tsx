/** A button that opens a list of choices below it: arrows move, Enter and Space choose, Escape closes. */
import type { ComponentChildren } from "preact";
import { useEffect, useId, useRef, useState } from "preact/hooks";

interface Props {
  /** The text of the button. */
  readonly text: ComponentChildren;
  readonly label: string;
  /** The text of the button already says what the menu is for. */
  readonly isNamed?: boolean;
  readonly class?: string;
  readonly align?: "start" | "end";
  readonly children: (close: () => void) => ComponentChildren;
}

export function Menu({ text, label, isNamed = false, class: className = "button", align = "start", children }: Props) {
  const [isOpen, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  const button = useRef<HTMLButtonElement>(null);
  const id = useId();
  const close = () => {
    setOpen(false);
    button.current?.focus();
  };
  useEffect(() => {
    if (!isOpen) return;
    items(root.current)[0]?.focus();
    const onPointer = (event: PointerEvent) => {
      if (!root.current?.contains(event.target as Node)) setOpen(false);
    };
    document.addEventListener("pointerdown", onPointer);
    return () => document.removeEventListener("pointerdown", onPointer);
  }, [isOpen]);
  const onKey = (event: KeyboardEvent) => {
    if (!isOpen) return;
    if (event.key === "Escape") {
      event.stopPropagation();
      close();
    } else if (event.key === "Tab") setOpen(false);
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      moveFocus(root.current, event.key === "ArrowDown" ? 1 : -1);
    }
  };
  return (
    <div class="menu-root" ref={root} onKeyDown={onKey}>
      <button
        ref={button}
        type="button"
        class={className}
        aria-haspopup="menu"
        aria-expanded={isOpen}
        aria-controls={isOpen ? id : undefined}
        onClick={() => setOpen(!isOpen)}
      >
        {!isNamed && <span class="visually-hidden">{label}: </span>}
        {text}
      </button>
      {isOpen && (
        <div id={id} class={`menu menu-${align}`} role="menu" aria-label={label}>
          {children(close)}
        </div>
      )}
    </div>
  );
}

function items(root: HTMLElement | null): HTMLElement[] {
  return [...(root?.querySelectorAll<HTMLElement>('.menu [role^="menuitem"]') ?? [])];
}

function moveFocus(root: HTMLElement | null, step: number): void {
  const all = items(root);
  const at = all.indexOf(document.activeElement as HTMLElement);
  all[(at + step + all.length) % all.length]?.focus();
}

interface ItemProps {
  readonly onChoose: () => void;
  readonly children: ComponentChildren;
  /** A choice of one (`radio`) or of several (`checkbox`). */
  readonly kind?: "radio" | "checkbox";
  readonly isChecked?: boolean;
}

export function MenuItem({ onChoose, children, kind, isChecked = false }: ItemProps) {
  return (
    <button
      type="button"
      class="menu-item"
      role={kind ? `menuitem${kind}` : "menuitem"}
      aria-checked={kind ? isChecked : undefined}
      tabIndex={-1}
      onClick={onChoose}
    >
      {kind && <i class={`menu-mark menu-mark-${kind}`} aria-hidden="true" />}
      <span>{children}</span>
    </button>
  );
}

export function MenuTitle({ children }: { children: ComponentChildren }) {
  return <div class="menu-title">{children}</div>;
}
