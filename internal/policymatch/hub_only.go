package policymatch

import (
	"fmt"

	"atoll.dev/atoll/internal/atoll"
)

// IsHubOnly reports whether an object is stated to stay on the hub: by an annotation or a label. On a
// CRD it counts for the objects of the kind, too.
func IsHubOnly(labels, annotations map[string]string) bool {
	return labels[atoll.KeyHubOnly] == "true" || annotations[atoll.KeyHubOnly] == "true"
}

// CheckAtollKeys returns an error for a label or an annotation of Atoll with a value without a meaning.
func CheckAtollKeys(labels, annotations map[string]string) error {
	for _, m := range []map[string]string{labels, annotations} {
		if value, stated := m[atoll.KeyHubOnly]; stated && value != "true" {
			return fmt.Errorf("%s is \"true\" or absent, and not %q", atoll.KeyHubOnly, value)
		}
	}
	_, err := annotatedTreatment(annotations)
	return err
}
