package atoll

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// CheckServiceAccount returns an error for a text that is neither NAMESPACE/NAME nor NAME of a ServiceAccount.
func CheckServiceAccount(text string) error {
	namespace, name, qualified := strings.Cut(text, "/")
	if !qualified {
		namespace, name = "default", text
	}
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return fmt.Errorf("%.80q names no ServiceAccount: write NAME or NAMESPACE/NAME", text)
	}
	return nil
}

// QualifyServiceAccount returns a ServiceAccount as NAMESPACE/NAME. A plain name is in the namespace. It fails for a
// malformed text, and for a plain name without a namespace.
func QualifyServiceAccount(text, namespace string) (string, error) {
	switch err := CheckServiceAccount(text); {
	case err != nil:
		return "", err
	case strings.Contains(text, "/"):
		return text, nil
	case namespace == "":
		return "", fmt.Errorf("the object has no namespace in which ServiceAccount %q could be: write NAMESPACE/NAME", text)
	}
	return namespace + "/" + text, nil
}

// IsQualifiedServiceAccount reports whether the text is NAMESPACE/NAME of a ServiceAccount.
func IsQualifiedServiceAccount(text string) bool {
	return strings.Contains(text, "/") && CheckServiceAccount(text) == nil
}

// TargetNamespace returns the namespace in which the key's object is, or that it is; empty for other cluster-scoped
// objects.
func (k ItemKey) TargetNamespace() string {
	if k.IsNamespace() {
		return k.Name
	}
	return k.Namespace
}
