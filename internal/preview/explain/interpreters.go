package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds/script"
)

// Failure of a script that the hub runs for the object; those that members run are in rows.
type Failure struct {
	// Asked is what the object waits for: FailureSent or FailureJoined.
	Asked string `json:"asked"`
	// Message names ResourceInterpreter, field and line.
	Message string `json:"message"`
	// Since when, as far as known.
	Since *time.Time `json:"since,omitempty"`
}

// The questions of a hub to scripts about an object.
const (
	// FailureSent: what has to be known before a template is sent.
	FailureSent = "sent"
	// FailureJoined: the status that clusters' statuses come to.
	FailureJoined = "joined"
)

// Interpreter is a ResourceInterpreter with answers for the object.
type Interpreter struct {
	// Name; empty: the answers are of interpreters that are gone, and stay.
	Name string `json:"name,omitempty"`
	// Answers by the keys of `atoll interpret`, in the order in which they run.
	Answers []string `json:"answers"`
}

// answerWords describe what each answer does, in the order in which they run.
var answerWords = []struct{ key, does string }{
	{"replicas", "returns its replicas"}, {"components", "returns its pods"}, {"dependencies", "names what goes along with it"},
	{"revised", "sets its replicas"}, {"retained", "keeps what members set"}, {"health", "judges its health"},
	{"status", "picks the status that is reported"}, {"aggregated", "joins its status"},
}

// itemInterpreters returns the interpreters of the requested object: those in the Bundle's
// content, and those of the hub that answered about the template.
func (in ExplanationInput) itemInterpreters(b Bundle) (out []Interpreter) {
	if in.isAboutBundle(b) || b.Content == nil {
		return nil
	}
	i := slices.IndexFunc(b.Content.Items, func(i atoll.Item) bool { return i.Key == in.Object })
	if i < 0 {
		return nil
	}
	item := &b.Content.Items[i]
	gvk := schema.FromAPIVersionAndKind(item.APIVersion, item.Key.Kind)
	by := script.NewInterpreters(b.Content.Interpreters).InterpretersByQuestion(gvk)
	var now map[string]string
	if in.Interpreters != nil {
		now = in.Interpreters.InterpretersByQuestion(gvk)
	}
	for _, key := range interpretedAnswers(item.Interpreted) {
		by[key] = now[key]
	}
	for _, a := range answerWords {
		name, answers := by[a.key]
		if !answers {
			continue
		}
		i := slices.IndexFunc(out, func(o Interpreter) bool { return o.Name == name })
		if i < 0 {
			i, out = len(out), append(out, Interpreter{Name: name})
		}
		out[i].Answers = append(out[i].Answers, a.key)
	}
	slices.SortStableFunc(out, func(a, b Interpreter) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// interpretedAnswers returns the answers of a template, by the keys of the answers.
func interpretedAnswers(x *atoll.InterpreterAnswers) (keys []string) {
	if x == nil {
		return nil
	}
	switch {
	case x.Replicas != nil:
		keys = append(keys, "replicas")
	case x.Pods != nil:
		keys = append(keys, "components")
	}
	if x.DependenciesComplete || len(x.Dependencies) > 0 {
		keys = append(keys, "dependencies")
	}
	return keys
}

// writeInterpreters writes which interpreters have a part in it, and what to do where one fails.
func (x BundleExplanation) writeInterpreters(b *strings.Builder) {
	for _, i := range x.Interpreters {
		var does []string
		for _, a := range answerWords {
			if slices.Contains(i.Answers, a.key) {
				does = append(does, a.does)
			}
		}
		all := does[len(does)-1]
		if n := len(does) - 1; n > 0 {
			all = strings.Join(does[:n], ", ") + " and " + all
		}
		who := "ResourceInterpreter " + i.Name
		if i.Name == "" {
			who, all = "A ResourceInterpreter that is gone", all+", which stays as it was"
		}
		fmt.Fprintf(b, "  %s %s.\n", who, all)
	}
	if slices.ContainsFunc(x.Clusters, func(c ClusterExplanation) bool { return c.Row.hasScriptFailure() }) {
		b.WriteString("  " + repairHint + "\n")
	}
}

// repairHint is what to do about a script that fails, whose interpreter, field and line are named.
const repairHint = "`atoll interpret -f OBJECT --with INTERPRETER` repeats what fails; kubectl edit resourceinterpreters mends it."

// hasScriptFailure reports whether a script fails about the row.
func (r *RowExplanation) hasScriptFailure() bool {
	return r != nil && (r.ProblemReason == atoll.ReasonInterpreterFailed || r.Who == atoll.ActorHub && strings.Contains(r.WaitsFor, string(atoll.ReasonInterpreterFailed)))
}

// writeScriptFailures writes the failures of scripts that the hub runs.
func (e Explanation) writeScriptFailures(b *strings.Builder) {
	for _, f := range e.Failures {
		what := "What users state now is not sent"
		if f.Asked == FailureJoined {
			what = "Its status is not joined, and stays as it was"
		}
		fmt.Fprintf(b, "\n%s%s: %s; to act: %s.\n  %s\n", what, e.durationSinceText(f.Since), strings.TrimSuffix(f.Message, "."), atoll.ActorHub, repairHint)
	}
}
