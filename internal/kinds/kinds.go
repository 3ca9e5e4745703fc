package kinds

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kindTraits is the knowledge about one kind, for all of its versions. A zero field means that
// the kind has no such trait.
type kindTraits struct {
	health    healthFunc
	reflect   func(obj *unstructured.Unstructured) (reflectedStatus, bool)
	aggregate func(a *statusAggregation) (map[string]any, bool)
	// usesGenericStatus: its rows and its aggregated status consist of the customary conditions,
	// countFields, the phase, and the traits below.
	usesGenericStatus bool
	// healthyByExistence: its status has no bearing on health.
	healthyByExistence bool

	// replicasPath of replicas that can be divided; default 1. needsOneCluster: all replicas form
	// one unit, which runs in one cluster.
	replicasPath    fieldPath
	needsOneCluster bool
	// volumesPath of volumes that each replica has for itself. Replicas with such volumes form
	// one unit.
	volumesPath fieldPath
	// podCountPath of the number of concurrent pods, for a kind whose replicas cannot be divided.
	podCountPath fieldPath
	// podParts of one replica, or of the whole object where it has no replicas.
	podParts []podPart

	// countFields of the status are summed, in the order of deploymentCounts.
	countFields []string
	// writesZeros: the API server requires countFields and sumFields also where they are 0.
	writesZeros bool
	// sumFields are counts in the status that are summed over all connected clusters, for a kind
	// without replicas.
	sumFields []fieldPath
	// customPhasePath of the phase in the status; default: phase.
	customPhasePath fieldPath
	// generationIsText: status.observedGeneration is a string.
	generationIsText bool
	// hasAddressList: status.addresses, of {type, value}, are joined over all clusters.
	hasAddressList bool
	// readyPath of a boolean in the status that is true while the object is ready. The joined one is
	// true where it is true in every connected cluster.
	readyPath fieldPath
	// requiredObjects are fields of the status that the API server requires, even when empty.
	requiredObjects []string
	// requiredTexts are strings in the status that the API server requires, even when empty.
	requiredTexts []string

	// hasEnded reports whether an object has run to completion. nil: the kind does not run once.
	hasEnded func(obj *unstructured.Unstructured) bool
	// runsForever reports whether an object of a kind that runs once states that it never ends;
	// nil: none does.
	runsForever func(obj *unstructured.Unstructured) bool
	// cannotRunAgain: the specification of the run is immutable, so an edit does not start another
	// run.
	cannotRunAgain bool
	// memberFields keep the member's value unless the hub states them.
	memberFields []fieldPath
	// immutableFields cannot be changed in an existing object.
	immutableFields []fieldPath
}

// fieldPath is a list of map keys. A key that ends in "[]" is a list, and the rest of the path
// applies to each of its elements.
type fieldPath []string

// String returns the dotted form of a path.
func (p fieldPath) String() string { return strings.Join(p, ".") }

// parsePath parses the dotted form of a path.
func parsePath(dotted string) fieldPath { return strings.Split(dotted, ".") }

func parsePaths(dotted ...string) []fieldPath {
	out := make([]fieldPath, len(dotted))
	for i, d := range dotted {
		out[i] = parsePath(d)
	}
	return out
}

// valueAt returns the value at a path of maps alone; nil where there is none.
func valueAt(m map[string]any, p fieldPath) any {
	if len(p) == 0 {
		return m
	}
	m = nestedMap(m, p[:len(p)-1]...)
	return m[p[len(p)-1]]
}

func mapAt(m map[string]any, p fieldPath) map[string]any {
	v, _ := valueAt(m, p).(map[string]any)
	return v
}

func stringAt(m map[string]any, p fieldPath) string {
	s, _ := valueAt(m, p).(string)
	return s
}

func countAt(m map[string]any, p fieldPath, absent int64) int64 {
	if len(p) == 0 {
		return absent
	}
	return countFieldOr(nestedMap(m, p[:len(p)-1]...), p[len(p)-1], absent)
}

// customKinds is a family of kinds that Kubernetes does not serve itself.
type customKinds map[schema.GroupKind]kindTraits

// kindTable holds all known kinds. It is never changed.
var kindTable = buildKindTable(upstreamKinds, argoKinds, fluxKinds, certManagerKinds, kueueKinds, volcanoKinds, flinkKinds, rayKinds, sparkKinds, knativeKinds, kubevirtKinds, openKruiseKinds,
	kubernetesSIGKinds, gatewayAPIKinds, istioKinds, prometheusKinds, strimziKinds, cloudNativePGKinds, elasticKinds, clusterAPIKinds, crossplaneKinds, kyvernoKinds, kubeflowKinds)

func buildKindTable(upstream map[schema.GroupKind]kindTraits, families ...customKinds) map[schema.GroupKind]*kindTraits {
	out := make(map[schema.GroupKind]*kindTraits, 256)
	for gk, k := range upstream {
		out[gk] = &k
	}
	for _, family := range families {
		for gk, k := range family {
			if k.health == nil {
				k.health = genericHealth
			}
			k.usesGenericStatus = true
			if out[gk] != nil {
				panic("kinds: " + gk.String() + " has two entries")
			}
			out[gk] = &k
		}
	}
	return out
}

var (
	unknownKind = &kindTraits{health: genericHealth, usesGenericStatus: true}
	// unlistedBuiltinKind is for kinds of Kubernetes without an entry, such as those of a newer
	// version.
	unlistedBuiltinKind = &kindTraits{health: genericHealth}
	providerConfigKind  = &kindTraits{health: existenceHealth, usesGenericStatus: true}
)

// traitsOfKind never returns nil.
func traitsOfKind(gk schema.GroupKind) *kindTraits {
	switch k := kindTable[gk]; {
	case k != nil:
		return k
	case builtinGroups[gk.Group]:
		return unlistedBuiltinKind
	case (gk.Kind == "ProviderConfig" || gk.Kind == "ClusterProviderConfig") && isCrossplaneGroup(gk.Group):
		return providerConfigKind
	}
	return unknownKind
}

func traitsOf(obj *unstructured.Unstructured) *kindTraits { return traitsOfKind(groupKindOf(obj)) }

var defaultPhasePath = fieldPath{"phase"}

func (k *kindTraits) statusPhasePath() fieldPath {
	if k.customPhasePath != nil {
		return k.customPhasePath
	}
	return defaultPhasePath
}

// HasOutdatedStatus reports whether the status, at its top or in a condition, shows that the
// controller has not observed the object's latest generation.
func HasOutdatedStatus(obj *unstructured.Unstructured) bool {
	st := statusOf(obj)
	return statusIsOutdated(st, conditionsOf(st), obj.GetGeneration())
}

func statusIsOutdated(st map[string]any, cs []condition, generation int64) bool {
	observed, ok := observedGenerationOf(st)
	return ok && observed < generation || slices.ContainsFunc(cs, func(c condition) bool { return c.hasObserved && c.observedGeneration < generation })
}

// observedGenerationOf returns the observed generation, which some controllers write as a
// string. ok is false where there is no number.
func observedGenerationOf(st map[string]any) (n int64, ok bool) {
	if n, ok = integerField(st, "observedGeneration"); ok {
		return n, true
	}
	n, err := strconv.ParseInt(stringField(st, "observedGeneration"), 10, 64)
	return n, err == nil
}
