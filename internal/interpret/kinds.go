package interpret

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kind is what this package knows of one kind, in whatever version; zero fields mean
// that the kind has nothing of the sort. It is data where that can be.
type kind struct {
	health    verdict
	reflect   func(obj *unstructured.Unstructured) (reflected, bool)
	aggregate func(a *aggregation) (map[string]any, bool)
	// generic: what is reflected of it, and what its template gets, is what is customary
	// and what counts, phase and textual name.
	generic bool
	// exists: it has no status that says anything, so that it is healthy by existing.
	exists bool

	// replicas is where it states replicas that can be shared out, 1 where it states
	// none. together: they make one whole, which goes to one cluster.
	replicas path
	together bool
	// volumes is where each replica states volumes of its own, which makes a whole of them.
	volumes path
	// number is where a kind whose replicas cannot be shared out states how many pods
	// run at once.
	number path
	// pods that one replica is made of, or the whole object where it has no replicas.
	pods []part

	// counts are the status' fields of a generic kind that are summed up, in the order of
	// deploymentCounts.
	counts []string
	// phase is where the status tells it; nil: at phase.
	phase path
	// textual: status.observedGeneration is a text.
	textual bool
	// addresses: status.addresses, of {type, value}, are joined of all clusters.
	addresses bool
	// objects that a status has to have, if only empty ones, for the API server to take it.
	objects []string

	// ended tells whether an object has run to completion; kinds that have it run once.
	ended func(obj *unstructured.Unstructured) bool
	// endless tells of such a kind whether an object never comes to an end, as it states;
	// nil: none does.
	endless func(obj *unstructured.Unstructured) bool
	// fixed: nobody can edit what is to run, so that an edit asks for no other run.
	fixed bool
	// member are the fields that stay as the member has them, unless the hub states them.
	member []path
	// frozen are the fields that the API server lets nobody change.
	frozen []path
}

// path to a field: keys of maps. A key that ends in "[]" is a list, and the path goes on
// in each of its elements.
type path []string

// at reads a path in its dotted form.
func at(dotted string) path { return strings.Split(dotted, ".") }

func all(dotted ...string) []path {
	out := make([]path, len(dotted))
	for i, d := range dotted {
		out[i] = at(d)
	}
	return out
}

// dig finds what stands at a path that goes through maps alone; nil where nothing does.
func dig(m map[string]any, p path) any {
	if len(p) == 0 {
		return m
	}
	m = child(m, p[:len(p)-1]...)
	return m[p[len(p)-1]]
}

func digMap(m map[string]any, p path) map[string]any {
	v, _ := dig(m, p).(map[string]any)
	return v
}

func digText(m map[string]any, p path) string {
	s, _ := dig(m, p).(string)
	return s
}

func digCount(m map[string]any, p path, absent int64) int64 {
	if len(p) == 0 {
		return absent
	}
	return countOr(child(m, p[:len(p)-1]...), p[len(p)-1], absent)
}

// custom kinds are those of others that Kubernetes does not serve itself, each family
// in a file of its own.
type custom map[schema.GroupKind]kind

// kinds by group and kind. It is not changed once it is made.
var kinds = tableOf(upstream, argo, flux, certManager, kueue, volcano, flink, ray, spark, knative, kubevirt, openKruise,
	kubernetesSIGs, gatewayAPI, istio, prometheus, strimzi, cloudNativePG, elastic, clusterAPI, crossplane)

func tableOf(upstream map[schema.GroupKind]kind, families ...custom) map[schema.GroupKind]*kind {
	out := make(map[schema.GroupKind]*kind, 256)
	for gk, k := range upstream {
		out[gk] = &k
	}
	for _, family := range families {
		for gk, k := range family {
			if k.health == nil {
				k.health = genericHealth
			}
			k.generic = true
			if out[gk] != nil {
				panic("interpret: " + gk.String() + " is told twice")
			}
			out[gk] = &k
		}
	}
	return out
}

var (
	unknownKind = &kind{health: genericHealth, generic: true}
	// silentKind is one of Kubernetes' own that the table does not name, such as one
	// that a newer Kubernetes brings.
	silentKind = &kind{health: genericHealth}
	configKind = &kind{health: existing, generic: true}
)

// of a kind, what is known; never nil.
func of(gk schema.GroupKind) *kind {
	switch k := kinds[gk]; {
	case k != nil:
		return k
	case builtinGroups[gk.Group]:
		return silentKind
	case (gk.Kind == "ProviderConfig" || gk.Kind == "ClusterProviderConfig") && crossplanes(gk.Group):
		return configKind
	}
	return unknownKind
}

func known(obj *unstructured.Unstructured) *kind { return of(groupKind(obj)) }

var phase = path{"phase"}

func (k *kind) phasePath() path {
	if k.phase != nil {
		return k.phase
	}
	return phase
}

// Late tells that a status says, at its top or in a condition, that its controller has not seen
// the object's latest generation.
func Late(obj *unstructured.Unstructured) bool {
	st := status(obj)
	return lateBy(st, conditionsOf(st), obj.GetGeneration())
}

func lateBy(st map[string]any, cs []condition, generation int64) bool {
	observed, ok := observedOf(st)
	return ok && observed < generation || slices.ContainsFunc(cs, func(c condition) bool { return c.hasObserved && c.observed < generation })
}

// observedOf is the generation that a controller says it has seen, which some write as a
// text; ok is false where it says none, or none that is a number.
func observedOf(st map[string]any) (n int64, ok bool) {
	if n, ok = number(st, "observedGeneration"); ok {
		return n, true
	}
	n, err := strconv.ParseInt(text(st, "observedGeneration"), 10, 64)
	return n, err == nil
}
