package assess

import (
	"testing"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// Rules share the paths that are equal: few rules of feedback make many combinations with others.
func TestEqualPathsAreCompiledOnce(t *testing.T) {
	of := func(completion string) *Rules {
		return CompileRules(&atoll.Assessment{Feedback: []v1alpha1.FeedbackRule{{Name: completion, JSONPath: ".status.shared", Type: v1alpha1.FeedbackString}}, Completion: completion})
	}
	a, b := of("true"), of("false")
	if a.ID() == b.ID() || a.feedback[0].compiledPath != b.feedback[0].compiledPath {
		t.Error("an equal path is compiled again")
	}
}
