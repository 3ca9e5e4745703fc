package plan

import (
	"errors"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A refusal says what is wrong, and nothing of what a patch of a Secret holds.
func TestARefusalHoldsNoPatch(t *testing.T) {
	of := func(value any, detail string) error {
		return apierrors.NewInvalid(schema.GroupKind{}, "", field.ErrorList{field.Invalid(field.NewPath("patch"), value, detail)})
	}
	for name, tc := range map[string]struct {
		err  error
		want string
	}{
		"an unknown field": {
			of(`map[stringData:map[password:hunter2 "]: x] typo:x]`, `strict decoding error: unknown field "typo"`),
			`strict decoding error: unknown field "typo"`,
		},
		"a patch that is no text": {of(map[string]any{"password": []any{"hunter2"}}, "is malformed"), "it is malformed"},
		"another cause":           {apierrors.NewInvalid(schema.GroupKind{Kind: "Secret"}, "pw", field.ErrorList{field.Forbidden(field.NewPath("data"), "is immutable")}), `Secret "pw" is invalid: data: Forbidden: is immutable`},
		"no status":               {errors.New("what"), "what"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := refusalText(tc.err); got != tc.want {
				t.Errorf("says %q, want %q", got, tc.want)
			}
		})
	}
}
