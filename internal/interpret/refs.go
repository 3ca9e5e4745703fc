package interpret

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
)

// PodTemplates gives the path of every pod spec in the object, wherever it lies
// (status and metadata excepted): a map that has containers which have names. Parts
// of a path are map keys and decimal list indexes, as Lookup takes them. Paths are
// sorted.
func PodTemplates(obj *unstructured.Unstructured) [][]string {
	var out [][]string
	for key, v := range obj.Object {
		if key != "status" && key != "metadata" {
			out = podSpecs(v, []string{key}, out)
		}
	}
	slices.SortFunc(out, slices.Compare[[]string])
	return out
}

func podSpecs(v any, path []string, out [][]string) [][]string {
	switch v := v.(type) {
	case map[string]any:
		if isPodSpec(v) {
			return append(out, slices.Clone(path))
		}
		for key, next := range v {
			out = podSpecs(next, append(path, key), out)
		}
	case []any:
		for i, next := range v {
			out = podSpecs(next, append(path, strconv.Itoa(i)), out)
		}
	}
	return out
}

func isPodSpec(m map[string]any) bool {
	containers := list(m, "containers")
	for _, c := range containers {
		if cm, _ := c.(map[string]any); text(cm, "name") == "" {
			return false
		}
	}
	return len(containers) > 0
}

// Dependencies lists what the object's pods and TLS settings, and the fields that custom kinds
// have for it, refer to by name:
// ConfigMaps, Secrets, ServiceAccounts (but not "default", which every namespace
// has), PersistentVolumeClaims, image pull secrets. Optional references are listed
// too. Sorted, without doubles; all are in the object's own namespace.
func Dependencies(obj *unstructured.Unstructured) []atoll.ItemKey {
	r := refs{namespace: obj.GetNamespace(), seen: map[atoll.ItemKey]bool{}}
	for _, path := range PodTemplates(obj) {
		if v, ok := Lookup(obj.Object, path); ok {
			r.podSpec(v.(map[string]any))
		}
	}
	r.referred(obj.Object, referring[groupKind(obj)])
	switch groupKind(obj) {
	case schema.GroupKind{Kind: "ServiceAccount"}:
		r.named(list(obj.Object, "imagePullSecrets"), "Secret", "name")
	case schema.GroupKind{Group: "networking.k8s.io", Kind: "Ingress"}:
		r.named(list(spec(obj), "tls"), "Secret", "secretName")
	case schema.GroupKind{Group: "gateway.networking.k8s.io", Kind: "Gateway"}:
		for _, l := range list(spec(obj), "listeners") {
			lm, _ := l.(map[string]any)
			r.certificates(list(child(lm, "tls"), "certificateRefs"))
		}
	}
	return r.sorted()
}

// PodDependencies lists what a pod of that namespace refers to by name, whether or not it says
// what it runs; as Dependencies does of pods that do.
func PodDependencies(pod map[string]any, namespace string) []atoll.ItemKey {
	r := refs{namespace: namespace, seen: map[atoll.ItemKey]bool{}}
	r.podSpec(pod)
	return r.sorted()
}

type refs struct {
	namespace string
	seen      map[atoll.ItemKey]bool
}

func (r refs) add(kind, name string) {
	if name != "" && !strings.Contains(name, "{{") { // which a Workflow fills in when it runs
		r.seen[atoll.ItemKey{Kind: kind, Namespace: r.namespace, Name: name}] = true
	}
}

func (r refs) sorted() []atoll.ItemKey {
	out := make([]atoll.ItemKey, 0, len(r.seen))
	for k := range r.seen {
		out = append(out, k)
	}
	slices.SortFunc(out, func(a, b atoll.ItemKey) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// named adds the name that each element of l has under key.
func (r refs) named(l []any, kind, key string) {
	for _, e := range l {
		em, _ := e.(map[string]any)
		r.add(kind, text(em, key))
	}
}

// certificates of a Gateway: core Secrets of the Gateway's own namespace.
func (r refs) certificates(l []any) {
	for _, e := range l {
		em, _ := e.(map[string]any)
		own := text(em, "namespace") == "" || text(em, "namespace") == r.namespace
		if own && text(em, "group") == "" && (text(em, "kind") == "" || text(em, "kind") == "Secret") {
			r.add("Secret", text(em, "name"))
		}
	}
}

func (r refs) podSpec(pod map[string]any) {
	r.named(list(pod, "imagePullSecrets"), "Secret", "name")
	account := orElse(text(pod, "serviceAccountName"), text(pod, "serviceAccount"))
	if account != "default" {
		r.add("ServiceAccount", account)
	}
	for _, key := range []string{"initContainers", "containers", "ephemeralContainers"} {
		for _, c := range list(pod, key) {
			cm, _ := c.(map[string]any)
			r.container(cm)
		}
	}
	for _, v := range list(pod, "volumes") {
		vm, _ := v.(map[string]any)
		r.volume(vm)
	}
}

func (r refs) container(c map[string]any) {
	for _, e := range list(c, "envFrom") {
		em, _ := e.(map[string]any)
		r.add("ConfigMap", text(child(em, "configMapRef"), "name"))
		r.add("Secret", text(child(em, "secretRef"), "name"))
	}
	for _, e := range list(c, "env") {
		em, _ := e.(map[string]any)
		r.add("ConfigMap", text(child(em, "valueFrom", "configMapKeyRef"), "name"))
		r.add("Secret", text(child(em, "valueFrom", "secretKeyRef"), "name"))
	}
}

// secretVolumes name a Secret in the field secretRef or nodePublishSecretRef.
var secretVolumes = []string{"cephfs", "cinder", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos"}

func (r refs) volume(v map[string]any) {
	r.add("ConfigMap", text(child(v, "configMap"), "name"))
	r.add("Secret", text(child(v, "secret"), "secretName"))
	r.add("PersistentVolumeClaim", text(child(v, "persistentVolumeClaim"), "claimName"))
	r.add("Secret", text(child(v, "azureFile"), "secretName"))
	r.add("Secret", text(child(v, "csi", "nodePublishSecretRef"), "name"))
	for _, kind := range secretVolumes {
		r.add("Secret", text(child(v, kind, "secretRef"), "name"))
	}
	for _, s := range list(child(v, "projected"), "sources") {
		sm, _ := s.(map[string]any)
		r.add("ConfigMap", text(child(sm, "configMap"), "name"))
		r.add("Secret", text(child(sm, "secret"), "name"))
	}
}
