/** A search in a list of this page; the words are in the address. */
import { changeQuery, route } from "../../router";

export function SearchBox({ label }: { label: string }) {
  return (
    <input
      class="field search-box"
      type="search"
      placeholder={label}
      aria-label={label}
      value={route.value.query["q"] ?? ""}
      onInput={(event) => changeQuery({ q: event.currentTarget.value }, { replace: true })}
    />
  );
}
