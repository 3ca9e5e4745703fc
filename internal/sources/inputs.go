package sources

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/changes"
	"atoll.dev/atoll/internal/sources/fetch"
	"atoll.dev/atoll/internal/sources/render"
)

// Objects are the objects of the hub as its watches have them.
type Objects interface {
	Get(key atoll.ItemKey) (*unstructured.Unstructured, bool)
	// IsSynced reports whether all objects of the kind are there.
	IsSynced(group, kind string) bool
	Subscribe(fn func(key atoll.ItemKey))
}

// readInputs reads the values that Sources name, by the rights of their accounts. It returns the Sources that have theirs, and
// those that are held: values are missing, or the ref is of another type of Repositories. Objects of a held Source stay.
func (r *Reconciler) readInputs(ctx context.Context, check *repositoryCheck, sources []*v1alpha1.Source) (ready, held []*v1alpha1.Source, err error) {
	check.inputs = map[string]render.Inputs{}
	var errs []error
	for _, s := range sources {
		_, err := check.place.RefOf(s)
		var inputs render.Inputs
		if err == nil {
			inputs, err = r.readInputsOf(ctx, s)
		}
		var failure *fetch.Failure
		switch {
		case ctx.Err() != nil:
			return nil, nil, ctx.Err()
		case errors.As(err, &failure):
			held = append(held, s)
			errs = append(errs, r.setUnread(ctx, []*v1alpha1.Source{s}, *failure))
		case err != nil:
			held = append(held, s)
			errs = append(errs, err)
		default:
			ready = append(ready, s)
			check.inputs[s.Name] = inputs
		}
	}
	return ready, held, errors.Join(errs...)
}

// maxRequestInputs is the most bytes of values in one fetch. The rest goes into the next one.
const maxRequestInputs = 8 << 20

// splitByInputs returns the Sources whose values one fetch takes, and the others. Those that wait for content come first, where not all
// fit. The others are in a random order, so that no Source is always the last.
func splitByInputs(check repositoryCheck, sources []*v1alpha1.Source) (asked, later []*v1alpha1.Source) {
	waits := func(s *v1alpha1.Source) bool {
		return !isSettled(s) || s.Status.ValuesDigest != check.inputs[s.Name].Digest()
	}
	sizeOf := func(s *v1alpha1.Source) (size int) {
		for _, text := range check.inputs[s.Name] {
			size += len(text)
		}
		return size
	}
	total := 0
	for _, s := range sources {
		total += sizeOf(s)
	}
	if total <= maxRequestInputs {
		return sources, nil
	}
	var waiting, others []*v1alpha1.Source
	for _, s := range sources {
		if waits(s) {
			waiting = append(waiting, s)
		} else {
			others = append(others, s)
		}
	}
	rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	sources = slices.Concat(waiting, others)
	size := 0
	for i, s := range sources {
		if size += sizeOf(s); size > maxRequestInputs && i > 0 {
			return sources[:i], sources[i:]
		}
	}
	return sources, nil
}

// readInputsOf reads the values that a Source names. The error is a *Failure, or one of the hub.
func (r *Reconciler) readInputsOf(ctx context.Context, s *v1alpha1.Source) (render.Inputs, error) {
	ctx = r.withAccountOf(ctx, s)
	return changes.CollectInputs(s, func(ref v1alpha1.ValuesReference) (*unstructured.Unstructured, error) {
		object, err := r.Templates.Resource(changes.ResourceOfReference(ref)).Namespace(s.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil, nil
		case apierrors.IsForbidden(err):
			return nil, render.NewFailure(atoll.ReasonValuesForbidden, "ServiceAccount %s, by whose rights the Source reads, may not get the %s %s, which valuesFrom names; grant it the right to get it", accountOf(s), ref.Kind, ref.Name)
		case err != nil:
			return nil, fmt.Errorf("read the %s %s of Source %s: %w", ref.Kind, ref.Name, s.Name, err)
		}
		return object, nil
	})
}

// isOfInputs reports whether a reason is of values that a Source names, so that the Source is held before its content is read.
func isOfInputs(why atoll.Reason) bool {
	return slices.Contains([]atoll.Reason{atoll.ReasonValuesMissing, atoll.ReasonValuesTooLarge, atoll.ReasonValuesForbidden}, why)
}

// mayRetryInputs reports whether only another check finds out that a Source is held no longer. Objects are watched, and rights are not.
func (r *Reconciler) mayRetryInputs(s *v1alpha1.Source) bool {
	now, ok := r.Sources.Get(client.ObjectKeyFromObject(s))
	if !ok {
		return false
	}
	c := meta.FindStatusCondition(now.Status.Conditions, v1alpha1.SourceRendered)
	if c != nil && c.Reason == string(atoll.ReasonRefUnsupported) {
		return false
	}
	return c == nil || c.Status != metav1.ConditionFalse || !isOfInputs(atoll.Reason(c.Reason)) || c.Reason == string(atoll.ReasonValuesForbidden)
}

// missedInputs reports whether a check of a Source read other values than the hub has now. An event of values that changed back during
// the check was compared with the status before it, so it made no other check.
func (r *Reconciler) missedInputs(s *v1alpha1.Source) bool {
	now, ok := r.Sources.Get(client.ObjectKeyFromObject(s))
	return ok && now.Generation == s.Generation && r.hasOtherInputs(now)
}

// valuesChanged checks the Repositories of the Sources that name a ConfigMap or a Secret whose values are other ones than those
// that were read last.
func (r *Reconciler) valuesChanged(key atoll.ItemKey) {
	for _, source := range r.references.sourcesOf(key) {
		if s, ok := r.Sources.Get(source); ok && r.hasOtherInputs(s) {
			r.enqueueChange(types.NamespacedName{Namespace: s.Namespace, Name: s.Spec.Repository})
		}
	}
}

// hasOtherInputs reports whether the values that a Source names are other ones than those that were read last. A suspended
// Source reads none.
func (r *Reconciler) hasOtherInputs(s *v1alpha1.Source) bool {
	if s.Spec.Suspend {
		return false
	}
	inputs, err := changes.CollectInputs(s, func(ref v1alpha1.ValuesReference) (*unstructured.Unstructured, error) {
		object, _ := r.Objects.Get(changes.KeyOfReference(s, ref))
		return object, nil
	})
	why := atoll.Reason("")
	if c := meta.FindStatusCondition(s.Status.Conditions, v1alpha1.SourceRendered); c != nil && c.Status == metav1.ConditionFalse {
		why = atoll.Reason(c.Reason)
	}
	var failure *fetch.Failure
	if errors.As(err, &failure) {
		return why != failure.Reason
	}
	return isOfInputs(why) || inputs.Digest() != s.Status.ValuesDigest
}

// referenceIndex is which Sources name which ConfigMaps and Secrets. It is safe for concurrent use.
type referenceIndex struct {
	mu       sync.Mutex
	byKey    map[atoll.ItemKey]map[types.NamespacedName]bool
	bySource map[types.NamespacedName][]atoll.ItemKey
}

func newReferenceIndex() *referenceIndex {
	return &referenceIndex{byKey: map[atoll.ItemKey]map[types.NamespacedName]bool{}, bySource: map[types.NamespacedName][]atoll.ItemKey{}}
}

// replaceReferences replaces what a Source names by what read returns. read is called under the lock, so that the last call has the
// newest state.
func (x *referenceIndex) replaceReferences(source types.NamespacedName, read func() []atoll.ItemKey) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, key := range x.bySource[source] {
		removeFromSet(x.byKey, key, source)
	}
	delete(x.bySource, source)
	keys := read()
	if len(keys) == 0 {
		return
	}
	x.bySource[source] = keys
	for _, key := range keys {
		addToSet(x.byKey, key, source)
	}
}

// sourcesOf lists the Sources that name an object.
func (x *referenceIndex) sourcesOf(key atoll.ItemKey) (out []types.NamespacedName) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for source := range x.byKey[key] {
		out = append(out, source)
	}
	return out
}

// indexReferences notes which ConfigMaps and Secrets a Source names. A Source that is gone names none.
func (r *Reconciler) indexReferences(source types.NamespacedName) {
	r.references.replaceReferences(source, func() (keys []atoll.ItemKey) {
		s, ok := r.Sources.Get(source)
		if !ok {
			return nil
		}
		for _, ref := range changes.ListReferences(s) {
			keys = append(keys, changes.KeyOfReference(s, ref))
		}
		return keys
	})
}
