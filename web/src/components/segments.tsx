/** A choice among few words, one of them chosen. */
interface Props<T extends string | number> {
  readonly label: string;
  readonly choices: readonly { readonly value: T; readonly text: string }[];
  readonly value: T;
  readonly onChoose: (value: T) => void;
}

export function Segments<T extends string | number>({ label, choices, value, onChoose }: Props<T>) {
  return (
    <div class="segments" role="group" aria-label={label}>
      {choices.map((choice) => (
        <button
          key={choice.value}
          type="button"
          class="segment"
          aria-pressed={choice.value === value}
          onClick={() => onChoose(choice.value)}
        >
          {choice.text}
        </button>
      ))}
    </div>
  );
}
