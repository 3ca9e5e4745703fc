package changes

import (
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/api/v1alpha1"
)

// IsRefusal reports whether an error of the API is about the object of the request, and not about the API or the user's
// credentials: the same request fails again.
func IsRefusal(err error) bool {
	var status apierrors.APIStatus
	switch {
	case !errors.As(err, &status):
		return false
	case apierrors.IsUnauthorized(err), apierrors.IsTooManyRequests(err), apierrors.IsServiceUnavailable(err), apierrors.IsTimeout(err), apierrors.IsServerTimeout(err):
		return false
	}
	return status.Status().Code >= 400
}

// DescribeError returns the text of an error of the API at an object of a Source. Values of a Secret are left out, which any
// object may have where the Source reads some.
func DescribeError(s *v1alpha1.Source, o v1alpha1.SourceObject, err error) string {
	var status apierrors.APIStatus
	if !ReadsSecrets(s) && !KeyOf(o).ItemKey().IsSecret() || !errors.As(err, &status) || apierrors.IsForbidden(err) || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return err.Error()
	}
	places := listPlaces(status.Status(), err.Error())
	if len(places) == 0 {
		return "the API refuses this " + o.Kind + "; its text may have values of a Secret, and is left out"
	}
	return strings.Join(places, "; ") + " (values of the Secret are left out)"
}

// listPlaces lists the fields that a refusal names, without their values.
func listPlaces(status metav1.Status, text string) (out []string) {
	if status.Details != nil {
		for _, c := range status.Details.Causes {
			if c.Field != "" && c.Field != "patch" {
				out = append(out, c.Field+": "+string(c.Type))
			}
		}
	}
	// Errors of types have one line for each field, with the value at its end.
	for line := range strings.Lines(text) {
		if field, _, found := strings.Cut(line, ", got "); found {
			out = append(out, strings.TrimSpace(field))
		}
	}
	return out
}
