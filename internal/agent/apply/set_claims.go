package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/atoll"
)

// The volume claims of its templates outlive a StatefulSet. They go with the namespace when a user deletes the namespace on
// the hub, as they do in a cluster without Atoll. The agent records their UIDs before it
// deletes the StatefulSet: later, nothing shows that a claim was made for it.

// volumeClaims as a resource, which every member serves.
var volumeClaims = member.Resource{Kind: "PersistentVolumeClaim", Namespaced: true, Listable: true, GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "persistentvolumeclaims"}}

// recordSetVolumeClaims records the claims of a StatefulSet that is deleted because its namespace was deleted on the hub.
func (e *MemberApplier) recordSetVolumeClaims(ctx context.Context, p pendingWork, res member.Resource) *Failure {
	if p.Key.Group != "apps" || p.Key.Kind != "StatefulSet" || p.Record.Adopted || !e.isNamespaceDoomed(p.Key.Namespace) {
		return nil
	}
	uids, failure := e.findSetVolumeClaims(ctx, p, res)
	if failure != nil || len(uids) == 0 {
		return failure
	}
	e.mu.Lock()
	e.book.RecordStatefulSetVolumeClaims(p.Key.Namespace, uids)
	e.mu.Unlock()
	if err := e.storeChangedRecords(ctx); err != nil {
		return failureFromError(err, p.Key)
	}
	return nil
}

// findSetVolumeClaims returns the UIDs of the claims that the templates of the plan's StatefulSet made.
func (e *MemberApplier) findSetVolumeClaims(ctx context.Context, p pendingWork, res member.Resource) (uids []string, failure *Failure) {
	set, err := e.o.Client.Get(ctx, res, p.Key.Namespace, p.Key.Name)
	if apierrors.IsNotFound(err) || err == nil && string(set.GetUID()) != p.Record.UID {
		return nil, nil
	}
	if err != nil {
		return nil, failureFromError(err, p.Key)
	}
	found, err := e.o.Client.List(ctx, volumeClaims, p.Key.Namespace, guardLimit)
	if apierrors.IsForbidden(err) {
		return nil, nil // the guard of the namespace reports it
	}
	if err != nil {
		return nil, failureFromError(err, p.Key)
	}
	of := newVolumeClaimMatcher(set)
	for i := range found {
		if of.matchesClaim(&found[i]) {
			uids = append(uids, string(found[i].UID))
		}
	}
	return uids, nil
}

// ClaimTemplateNames returns the names of the volume claim templates of a StatefulSet, as its Bundle states them.
func (e *MemberApplier) ClaimTemplateNames(key atoll.ItemKey) (names []string) {
	e.mu.Lock()
	r, _ := e.book.Record(key)
	item := e.book.ItemToApplyOrObserve(r.Owner, key)
	e.mu.Unlock()
	if item == nil {
		return nil
	}
	var set struct {
		Spec struct {
			VolumeClaimTemplates []struct {
				Metadata struct {
					Name string `json:"name"`
				} `json:"metadata"`
			} `json:"volumeClaimTemplates"`
		} `json:"spec"`
	}
	if json.Unmarshal(item.Object, &set) != nil {
		return nil // the member refuses such an object
	}
	for _, t := range set.Spec.VolumeClaimTemplates {
		names = append(names, t.Metadata.Name)
	}
	return names
}

// isNamespaceDoomed reports whether the agent made the namespace, and the namespace was deleted on the hub.
func (e *MemberApplier) isNamespaceDoomed(namespace string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	r, known := e.book.Record(atoll.NamespaceKey(namespace))
	return known && r.Implicit && r.Doomed
}

// recordedVolumeClaimsIn returns the UIDs of the volume claims that go along with a namespace; nil for other resources.
func (e *MemberApplier) recordedVolumeClaimsIn(res member.Resource, namespace string) []string {
	if namespace == "" || res.Resource != volumeClaims.Resource || res.Group != "" {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	r, _ := e.book.Record(atoll.NamespaceKey(namespace))
	return r.SetClaims
}

// tooManyVolumeClaimsFailure is why a namespace stays of which the guard does not see all volume claims.
func tooManyVolumeClaimsFailure(guarded atoll.ItemKey) *Failure {
	return &Failure{
		Reason: atoll.ReasonForeignObjects, Waits: true, First: 2 * time.Second, Most: 2 * time.Minute,
		Message: fmt.Sprintf("%s %s is kept: it has %d volume claims or more, and the agent looks at fewer: delete the claims in the member first", guarded.Kind, guarded.Name, guardLimit),
	}
}

// volumeClaimMatcher is what of a StatefulSet identifies the claims that were made for it.
type volumeClaimMatcher struct {
	prefixes []string // of names, before the ordinal
	selector labels.Selector
	// controller is the field manager that writes the status of the StatefulSet.
	controller string
}

func newVolumeClaimMatcher(set *unstructured.Unstructured) volumeClaimMatcher {
	out := volumeClaimMatcher{selector: labels.Nothing()}
	templates, _, _ := unstructured.NestedSlice(set.Object, "spec", "volumeClaimTemplates")
	for _, t := range templates {
		if m, ok := t.(map[string]any); ok {
			name, _, _ := unstructured.NestedString(m, "metadata", "name")
			out.prefixes = append(out.prefixes, name+"-"+set.GetName()+"-")
		}
	}
	matched, _, _ := unstructured.NestedStringMap(set.Object, "spec", "selector", "matchLabels")
	if len(matched) > 0 {
		out.selector = labels.SelectorFromSet(matched)
	}
	for _, f := range set.GetManagedFields() {
		if f.Subresource == "status" {
			out.controller = f.Manager
		}
	}
	return out
}

// matchesClaim reports whether the controller of the StatefulSet made the claim for it: by the claim's
// name, its labels, and the field manager that stated the claim's requests. A claim that another made under
// such a name stays.
func (s volumeClaimMatcher) matchesClaim(claim *metav1.PartialObjectMetadata) bool {
	if s.controller == "" || !s.selector.Matches(labels.Set(claim.Labels)) || !s.matchesName(claim.Name) {
		return false
	}
	for _, f := range claim.ManagedFields {
		if f.FieldsV1 != nil && f.Subresource == "" && strings.Contains(f.FieldsV1.GetRawString(), `"f:accessModes"`) {
			return f.Manager == s.controller
		}
	}
	return false
}

func (s volumeClaimMatcher) matchesName(name string) bool {
	for _, prefix := range s.prefixes {
		if ordinal, ok := strings.CutPrefix(name, prefix); ok && ordinal != "" && strings.Trim(ordinal, "0123456789") == "" {
			return true
		}
	}
	return false
}
