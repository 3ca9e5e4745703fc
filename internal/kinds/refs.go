package kinds

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
)

// PodSpecPaths returns the sorted paths of all pod specs in the object, outside of status and
// metadata. A pod spec is a map with containers that have names. The parts of a path are map
// keys and decimal list indexes; see LookupPath.
func PodSpecPaths(obj *unstructured.Unstructured) [][]string {
	var out [][]string
	for key, v := range obj.Object {
		if key != "status" && key != "metadata" {
			out = appendPodSpecPaths(v, []string{key}, out)
		}
	}
	slices.SortFunc(out, slices.Compare[[]string])
	return out
}

func appendPodSpecPaths(v any, path []string, out [][]string) [][]string {
	switch v := v.(type) {
	case map[string]any:
		if isPodSpec(v) {
			return append(out, slices.Clone(path))
		}
		for key, next := range v {
			out = appendPodSpecPaths(next, append(path, key), out)
		}
	case []any:
		for i, next := range v {
			out = appendPodSpecPaths(next, append(path, strconv.Itoa(i)), out)
		}
	}
	return out
}

func isPodSpec(m map[string]any) bool {
	containers := listField(m, "containers")
	for _, c := range containers {
		if cm, _ := c.(map[string]any); stringField(cm, "name") == "" {
			return false
		}
	}
	return len(containers) > 0
}

// DependenciesOf returns the objects that the object references by name: in its pod specs, its
// TLS settings, and the known fields of custom kinds. These are ConfigMaps, Secrets,
// PersistentVolumeClaims, and ServiceAccounts other than "default". Optional references are
// included. The result is sorted, without duplicates, and in the namespace of the object.
func DependenciesOf(obj *unstructured.Unstructured) []atoll.ItemKey {
	r := referenceSet{namespace: obj.GetNamespace(), references: map[atoll.ItemKey]bool{}}
	for _, path := range PodSpecPaths(obj) {
		if v, ok := LookupPath(obj.Object, path); ok {
			r.addPodSpecReferences(v.(map[string]any))
		}
	}
	r.addCustomReferences(obj.Object, customReferences[groupKindOf(obj)])
	switch groupKindOf(obj) {
	case schema.GroupKind{Kind: "ServiceAccount"}:
		r.addReferencesByKey(listField(obj.Object, "imagePullSecrets"), "Secret", "name")
	case schema.GroupKind{Group: "networking.k8s.io", Kind: "Ingress"}:
		r.addReferencesByKey(listField(specOf(obj), "tls"), "Secret", "secretName")
	case schema.GroupKind{Group: "gateway.networking.k8s.io", Kind: "Gateway"}:
		for _, l := range listField(specOf(obj), "listeners") {
			lm, _ := l.(map[string]any)
			r.addGatewayCertificates(listField(nestedMap(lm, "tls"), "certificateRefs"))
		}
	}
	return r.sortedReferences()
}

// PodDependencies returns the references of a pod spec, whether or not it has containers; see
// DependenciesOf.
func PodDependencies(pod map[string]any, namespace string) []atoll.ItemKey {
	r := referenceSet{namespace: namespace, references: map[atoll.ItemKey]bool{}}
	r.addPodSpecReferences(pod)
	return r.sortedReferences()
}

type referenceSet struct {
	namespace  string
	references map[atoll.ItemKey]bool
}

func (r referenceSet) addReference(kind, name string) {
	if name != "" && !strings.Contains(name, "{{") { // a variable of a Workflow
		r.references[atoll.ItemKey{Kind: kind, Namespace: r.namespace, Name: name}] = true
	}
}

func (r referenceSet) sortedReferences() []atoll.ItemKey {
	out := make([]atoll.ItemKey, 0, len(r.references))
	for k := range r.references {
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b atoll.ItemKey) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// addReferencesByKey adds the names that the elements of l have under key.
func (r referenceSet) addReferencesByKey(l []any, kind, key string) {
	for _, e := range l {
		em, _ := e.(map[string]any)
		r.addReference(kind, stringField(em, key))
	}
}

// addGatewayCertificates adds the core Secrets of a Gateway in its own namespace.
func (r referenceSet) addGatewayCertificates(l []any) {
	for _, e := range l {
		em, _ := e.(map[string]any)
		own := stringField(em, "namespace") == "" || stringField(em, "namespace") == r.namespace
		if own && stringField(em, "group") == "" && (stringField(em, "kind") == "" || stringField(em, "kind") == "Secret") {
			r.addReference("Secret", stringField(em, "name"))
		}
	}
}

func (r referenceSet) addPodSpecReferences(pod map[string]any) {
	r.addReferencesByKey(listField(pod, "imagePullSecrets"), "Secret", "name")
	account := orElse(stringField(pod, "serviceAccountName"), stringField(pod, "serviceAccount"))
	if account != "default" {
		r.addReference("ServiceAccount", account)
	}
	for _, key := range []string{"initContainers", "containers", "ephemeralContainers"} {
		for _, c := range listField(pod, key) {
			cm, _ := c.(map[string]any)
			r.addContainerReferences(cm)
		}
	}
	for _, v := range listField(pod, "volumes") {
		vm, _ := v.(map[string]any)
		r.addVolumeReferences(vm)
	}
}

func (r referenceSet) addContainerReferences(c map[string]any) {
	for _, e := range listField(c, "envFrom") {
		em, _ := e.(map[string]any)
		r.addReference("ConfigMap", stringField(nestedMap(em, "configMapRef"), "name"))
		r.addReference("Secret", stringField(nestedMap(em, "secretRef"), "name"))
	}
	for _, e := range listField(c, "env") {
		em, _ := e.(map[string]any)
		r.addReference("ConfigMap", stringField(nestedMap(em, "valueFrom", "configMapKeyRef"), "name"))
		r.addReference("Secret", stringField(nestedMap(em, "valueFrom", "secretKeyRef"), "name"))
	}
}

// secretVolumes reference a Secret in the field secretRef or nodePublishSecretRef.
var secretVolumes = []string{"cephfs", "cinder", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos"}

func (r referenceSet) addVolumeReferences(v map[string]any) {
	r.addReference("ConfigMap", stringField(nestedMap(v, "configMap"), "name"))
	r.addReference("Secret", stringField(nestedMap(v, "secret"), "secretName"))
	r.addReference("PersistentVolumeClaim", stringField(nestedMap(v, "persistentVolumeClaim"), "claimName"))
	r.addReference("Secret", stringField(nestedMap(v, "azureFile"), "secretName"))
	r.addReference("Secret", stringField(nestedMap(v, "csi", "nodePublishSecretRef"), "name"))
	for _, kind := range secretVolumes {
		r.addReference("Secret", stringField(nestedMap(v, kind, "secretRef"), "name"))
	}
	for _, s := range listField(nestedMap(v, "projected"), "sources") {
		sm, _ := s.(map[string]any)
		r.addReference("ConfigMap", stringField(nestedMap(sm, "configMap"), "name"))
		r.addReference("Secret", stringField(nestedMap(sm, "secret"), "name"))
	}
}
