/** A survey of one question with React. The answer is randomized in the browser. */

import { useEffect, useState } from "react";
import { createRoot } from "react-dom/client";
import { shoal } from "shoal";

// What a page ships: the plan's id, the collector, and the largest local epsilon it asks visitors for.
const survey = shoal(await (await fetch("/settings.json")).json());

function Survey() {
  const [question, setQuestion] = useState();
  const [state, setState] = useState("");
  useEffect(() => {
    survey.send(); // what waits from an earlier visit
    survey.plan().then((plan) => setQuestion(plan.survey.questions[0]), (error) => setState(error.message));
  }, []);
  const submit = async (form) => {
    const { isNew } = await survey.answer({ [question.name]: form.getAll("option") });
    const [ticket] = await survey.send();
    setState(isNew ? ticket.state : "answered before");
  };
  return (
    <form action={submit}>
      <fieldset>
        <legend>{question?.name ?? "…"}</legend>
        {question?.options.map((option) => (
          <label key={option}>
            <input type="checkbox" name="option" value={option} /> {option}
          </label>
        ))}
      </fieldset>
      <button>Send</button>
      <p role="status">{state}</p>
    </form>
  );
}

createRoot(document.getElementById("app")).render(<Survey />);
