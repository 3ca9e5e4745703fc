package fleetview

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"atoll.dev/atoll/internal/phrase"
)

const (
	// namedMost names, or reasons, are in one error.
	namedMost = 10
	// leadingMost is the part of a template's name that the names of its pods begin with: a controller
	// that appends to a longer name cuts it first.
	leadingMost = 40
)

// MayOwnPodByName reports whether a template with a name may have pods of a name: controllers begin
// the name of a pod with the name of the pod's owner.
func MayOwnPodByName(template, pod string) bool {
	if len(template) > leadingMost {
		return strings.HasPrefix(pod, template[:leadingMost])
	}
	return pod == template || strings.HasPrefix(pod, template+"-")
}

// PodLookup is the answer of clusters about a pod by its own name.
type PodLookup struct {
	// Holders are the clusters that have a pod of the name.
	Holders []string
	// Unknown are the errors of clusters that may have one.
	Unknown []error
	// Unasked is the number of clusters that may have one and are too many for requests.
	Unasked int
}

// Resolve returns the one cluster of a pod. A name that no cluster is known to have is NotFound.
// An unknown answer is no absence: a request that acts is refused where another cluster may have a
// pod of the name too.
func (l PodLookup) Resolve(namespace, name string, acts bool) (cluster string, err error) {
	switch {
	case len(l.Holders) > 1:
		return "", AmbiguousNameError(namespace, name, l.Holders)
	case len(l.Holders) == 0:
		return "", l.notFoundError(name)
	case acts && len(l.Unknown) > 0:
		return "", apierrors.NewServiceUnavailable(fmt.Sprintf("pod %s/%s runs in cluster %s, and more clusters may have a pod of this name: %s; to act on the first, name it %s",
			namespace, name, l.Holders[0], joinReasons(l.Unknown), FullName(name, l.Holders[0])))
	}
	return l.Holders[0], nil
}

// Warning is for the reader of an answer about one cluster, or about none; empty where it is
// complete.
func (l PodLookup) Warning(name string) string {
	missing := l.IncompleteReasons()
	if len(missing) == 0 {
		return ""
	}
	return fmt.Sprintf("more clusters may have a pod %s: %s", name, joinReasons(missing))
}

// IncompleteReasons are the reasons why the answer is not complete.
func (l PodLookup) IncompleteReasons() []error {
	if l.Unasked == 0 {
		return l.Unknown
	}
	return append(slices.Clone(l.Unknown), errors.New(l.unaskedReason()))
}

// notFoundError is upstream's, with the reason why the pod may be there all the same.
func (l PodLookup) notFoundError(name string) error {
	err := apierrors.NewNotFound(corev1.Resource("pods"), name)
	if len(l.Unknown) > 0 {
		err.ErrStatus.Message += "; it may be where the hub cannot look: " + joinReasons(l.Unknown)
	}
	if l.Unasked > 0 {
		err.ErrStatus.Message += fmt.Sprintf("; %s: name it %s", l.unaskedReason(), FullName(name, "CLUSTER"))
	}
	return err
}

func (l PodLookup) unaskedReason() string {
	return fmt.Sprintf("%d clusters may have it, which is too many requests for a name without a cluster", l.Unasked)
}

func joinReasons(errs []error) string {
	why := make([]string, len(errs))
	for i, err := range errs {
		why[i] = err.Error()
	}
	slices.Sort(why)
	return phrase.JoinFirstBy("; ", why, namedMost)
}

// AmbiguousNameError refuses a name that pods of several clusters have.
func AmbiguousNameError(namespace, name string, clusters []string) error {
	full := make([]string, len(clusters))
	for i, cluster := range clusters {
		full[i] = FullName(name, cluster)
	}
	slices.Sort(full)
	return apierrors.NewBadRequest(fmt.Sprintf("pod %s/%s runs in %d clusters; name one of: %s", namespace, name, len(full), phrase.JoinFirstBy(", ", full, namedMost)))
}
