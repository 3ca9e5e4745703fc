package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret/script"
	"atoll.dev/atoll/internal/rollout"
)

// Failure of a script that the hub asks about the object; those that members ask are in rows.
type Failure struct {
	// Asked is what the object waits for: FailureSent or FailureJoined.
	Asked string `json:"asked"`
	// Message names ResourceInterpreter, field and line.
	Message string `json:"message"`
	// Since when, as far as known.
	Since *time.Time `json:"since,omitempty"`
}

// What a hub asks scripts for about an object.
const (
	// FailureSent: what has to be known before a template is sent.
	FailureSent = "sent"
	// FailureJoined: the status that clusters' statuses come to.
	FailureJoined = "joined"
)

// Interpreter is a ResourceInterpreter that says something of the object.
type Interpreter struct {
	// Name; empty: interpreters that are gone said so, and it stays.
	Name string `json:"name,omitempty"`
	// Answers by the keys of `atoll interpret`, in the order in which they are asked.
	Answers []string `json:"answers"`
}

// answerWords say of each answer what it does, in the order in which they are asked.
var answerWords = []struct{ key, does string }{
	{"replicas", "tells its replicas"}, {"components", "tells its pods"}, {"dependencies", "names what goes along with it"},
	{"revised", "sets its replicas"}, {"retained", "keeps what members set"}, {"health", "judges its health"},
	{"status", "picks the status that is reported"}, {"aggregated", "joins its status"},
}

// interpreters of the object that was asked about: those in the Bundle's content, and those of
// the hub that told what the content has of the template.
func (in Input) interpreters(b Bundle) (out []Interpreter) {
	if in.about(b) || b.Content == nil {
		return nil
	}
	i := slices.IndexFunc(b.Content.Items, func(i atoll.Item) bool { return i.Key == in.Object })
	if i < 0 {
		return nil
	}
	item := &b.Content.Items[i]
	gvk := schema.FromAPIVersionAndKind(item.APIVersion, item.Key.Kind)
	by := script.Of(b.Content.Interpreters).Answerers(gvk)
	var now map[string]string
	if in.Interpreters != nil {
		now = in.Interpreters.Answerers(gvk)
	}
	for _, key := range told(item.Interpreted) {
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

// told of a template, by the keys of the answers.
func told(x *atoll.Interpreted) (keys []string) {
	if x == nil {
		return nil
	}
	switch {
	case x.Replicas != nil:
		keys = append(keys, "replicas")
	case x.Pods != nil:
		keys = append(keys, "components")
	}
	if x.Depends || len(x.Dependencies) > 0 {
		keys = append(keys, "dependencies")
	}
	return keys
}

// interpreted says which interpreters have a part in it, and what to do where one fails.
func (x BundleExplanation) interpreted(b *strings.Builder) {
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
	if slices.ContainsFunc(x.Clusters, func(c ClusterExplanation) bool { return c.Row.unanswered() }) {
		b.WriteString("  " + mend + "\n")
	}
}

// mend is what to do about a script that fails, whose interpreter, field and line are said.
const mend = "`atoll interpret -f OBJECT --with INTERPRETER` repeats what fails; kubectl edit resourceinterpreters mends it."

// unanswered tells whether a script fails about the row.
func (r *RowExplanation) unanswered() bool {
	return r != nil && (strings.HasPrefix(r.Problem, atoll.InterpreterFailed) || r.Who == rollout.WhoHub && strings.Contains(r.WaitsFor, atoll.InterpreterFailed))
}

// failures of scripts that the hub asks.
func (e Explanation) failures(b *strings.Builder) {
	for _, f := range e.Failures {
		what := "What users state now is not sent"
		if f.Asked == FailureJoined {
			what = "Its status is not joined, and stays as it was"
		}
		fmt.Fprintf(b, "\n%s%s: %s; to act: %s.\n  %s\n", what, e.ago(f.Since), strings.TrimSuffix(f.Message, "."), rollout.WhoHub, mend)
	}
}
