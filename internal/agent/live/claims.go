package live

import (
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"atoll.dev/atoll/internal/atoll"
)

// volumeClaim is the kind of volume claims.
const volumeClaim = "PersistentVolumeClaim"

var statefulSet = appsv1.SchemeGroupVersion.WithKind("StatefulSet")

// controllerOf returns the controller of an object. The claim of a StatefulSet has no owner reference, because the claim outlives the
// set. Its name is that of a claim template, of the set and of a pod, and the set uses the claim of this name.
func (o *ownershipResolver) controllerOf(gvk schema.GroupVersionKind, m metav1.Object) *objectRef {
	if c := controllerRef(m); c != nil || gvk.Group != "" || gvk.Kind != volumeClaim {
		return c
	}
	return o.setOfClaim(m.GetNamespace(), m.GetName())
}

// setOfClaim returns the recorded StatefulSet that uses a claim; nil: none does.
func (o *ownershipResolver) setOfClaim(namespace, claim string) *objectRef {
	last := strings.LastIndexByte(claim, '-')
	if last < 0 || last == len(claim)-1 || strings.Trim(claim[last+1:], "0123456789") != "" {
		return nil
	}
	for rest, i := claim[:last], 0; ; {
		next := strings.IndexByte(rest[i:], '-')
		if next < 0 {
			return nil
		}
		i += next + 1
		key := atoll.ItemKey{Group: statefulSet.Group, Kind: statefulSet.Kind, Namespace: namespace, Name: rest[i:]}
		uid, recorded := o.records.AppliedUID(key)
		if !recorded || !slices.Contains(o.claimTemplatesOf(key), rest[:i-1]) {
			continue
		}
		if uid == "" {
			uid = "unknown" // its owner is pending until the UID is recorded
		}
		return &objectRef{statefulSet, namespace, key.Name, types.UID(uid)}
	}
}

// claimTemplatesOf returns the names of the claim templates of a recorded StatefulSet. They never change.
func (o *ownershipResolver) claimTemplatesOf(key atoll.ItemKey) []string {
	names, known := o.claimTemplates[key]
	if !known {
		if names = o.records.ClaimTemplateNames(key); len(names) > 0 {
			o.claimTemplates[key] = names
		}
	}
	return names
}
