package userfields

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/kinds"
)

// kindCleaner removes from an object what its kind's own API server, or a controller, fills in.
// loose: ownership is unknown, so a field that may have been filled in is removed as well.
type kindCleaner func(obj map[string]any, loose bool)

var kindCleaners = map[schema.GroupKind]kindCleaner{
	{Kind: "Namespace"}:                                       cleanNamespace,
	{Kind: "Service"}:                                         cleanService,
	{Kind: "ServiceAccount"}:                                  cleanServiceAccount,
	{Kind: "Secret"}:                                          cleanSecret,
	{Kind: "PersistentVolumeClaim"}:                           cleanPersistentVolumeClaim,
	{Kind: "PersistentVolume"}:                                cleanPersistentVolume,
	{Kind: "Pod"}:                                             cleanPod,
	{Group: "batch", Kind: "Job"}:                             cleanJob,
	{Group: "batch", Kind: "CronJob"}:                         cleanCronJob,
	{Group: "apps", Kind: "Deployment"}:                       cleanRolloutAnnotations,
	{Group: "apps", Kind: "ReplicaSet"}:                       cleanRolloutAnnotations,
	{Group: "apps", Kind: "DaemonSet"}:                        cleanRolloutAnnotations,
	{Group: "apps", Kind: "StatefulSet"}:                      cleanStatefulSet,
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}: cleanClusterRole,
	{Group: "apiregistration.k8s.io", Kind: "APIService"}:     cleanAPIService,
}

// removeSystemFields removes what the hub, the API server and controllers add. It changes obj in
// place.
func removeSystemFields(obj *unstructured.Unstructured, loose bool) {
	meta := ChildMap(obj.Object, "metadata")
	removeMatchingKeys(ChildMap(meta, "labels"), IsHubKey)
	removeMatchingKeys(ChildMap(meta, "annotations"), IsHubKey)
	if fs, ok := meta["finalizers"].([]any); ok {
		meta["finalizers"] = slices.DeleteFunc(fs, func(f any) bool { s, _ := f.(string); return isHubFinalizer(s) })
	}
	for _, path := range kinds.PodSpecPaths(obj) {
		if v, ok := kinds.LookupPath(obj.Object, path); ok {
			if spec, ok := v.(map[string]any); ok {
				cleanPodSpec(spec)
				if !kinds.IsCustomKind(obj.GroupVersionKind().GroupKind()) {
					removeDuplicatePodElements(spec)
				}
			}
		}
	}
	if c, ok := kindCleaners[obj.GroupVersionKind().GroupKind()]; ok {
		c(obj.Object, loose)
	}
}

// ChildMap returns a nested map, or nil when there is none.
func ChildMap(m map[string]any, path ...string) map[string]any {
	for _, p := range path {
		m, _ = m[p].(map[string]any)
	}
	return m
}

func removeMatchingKeys(m map[string]any, is func(string) bool) {
	for k := range m {
		if is(k) {
			delete(m, k)
		}
	}
}

func deleteKeys(m map[string]any, keys ...string) {
	for _, k := range keys {
		delete(m, k)
	}
}

func cleanNamespace(obj map[string]any, _ bool) {
	deleteKeys(ChildMap(obj, "metadata", "labels"), "kubernetes.io/metadata.name")
	delete(obj, "spec")
}

func cleanService(obj map[string]any, loose bool) {
	spec := ChildMap(obj, "spec")
	if spec == nil {
		return
	}
	cleanDummyAddresses(spec)
	if !loose {
		return
	}
	if spec["clusterIP"] != "None" {
		delete(spec, "clusterIP")
	}
	deleteKeys(spec, "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort")
	ports, _ := spec["ports"].([]any)
	for _, p := range ports {
		if m, ok := p.(map[string]any); ok {
			delete(m, "nodePort")
		}
	}
}

// cleanDummyAddresses removes the addresses that the hub gives a Service because it has none. An
// object that a user applies as the hub returned it states them, and no member receives them.
func cleanDummyAddresses(spec map[string]any) {
	dummy := func(v any) bool {
		text, _ := v.(string)
		return atoll.IsHubAssignedAddress(text)
	}
	if dummy(spec["clusterIP"]) {
		delete(spec, "clusterIP")
	}
	removeListElements(spec, "clusterIPs", dummy)
	if fmt.Sprint(spec["healthCheckNodePort"]) == strconv.Itoa(atoll.DummyHealthCheckPort) {
		delete(spec, "healthCheckNodePort")
	}
}

func cleanServiceAccount(obj map[string]any, _ bool) {
	name, _ := ChildMap(obj, "metadata")["name"].(string)
	refs, ok := obj["secrets"].([]any)
	if !ok {
		return
	}
	kept := slices.DeleteFunc(refs, func(r any) bool {
		m, _ := r.(map[string]any)
		secret, _ := m["name"].(string)
		return strings.HasPrefix(secret, name+"-token-") || strings.HasPrefix(secret, name+"-dockercfg-")
	})
	if obj["secrets"] = kept; len(kept) == 0 {
		delete(obj, "secrets")
	}
}

func cleanSecret(obj map[string]any, _ bool) {
	if obj["type"] != "kubernetes.io/service-account-token" {
		return
	}
	deleteKeys(ChildMap(obj, "data"), "ca.crt", "namespace", "token")
	deleteKeys(ChildMap(obj, "metadata", "annotations"), "kubernetes.io/service-account.uid")
	deleteKeys(ChildMap(obj, "metadata", "labels"), "kubernetes.io/legacy-token-last-used")
}

func cleanPersistentVolumeClaim(obj map[string]any, loose bool) {
	notes := ChildMap(obj, "metadata", "annotations")
	if _, bound := notes["pv.kubernetes.io/bind-completed"]; bound || loose {
		deleteKeys(ChildMap(obj, "spec"), "volumeName")
	}
	deleteKeys(notes, "pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller",
		"volume.kubernetes.io/selected-node", "volume.kubernetes.io/storage-provisioner",
		"volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-resizer")
}

func cleanPersistentVolume(obj map[string]any, _ bool) {
	deleteKeys(ChildMap(obj, "spec", "claimRef"), "uid", "resourceVersion")
	deleteKeys(ChildMap(obj, "metadata", "annotations"), "pv.kubernetes.io/bound-by-controller")
}

func cleanPod(obj map[string]any, loose bool) {
	if loose {
		deleteKeys(ChildMap(obj, "spec"), "nodeName", "priority", "preemptionPolicy")
	}
}

// cleanPodSpec cleans a pod spec anywhere. It removes what the member's own admission adds to pods,
// and one of two names of the same field.
func cleanPodSpec(spec map[string]any) {
	injected := func(v any) bool {
		m, _ := v.(map[string]any)
		name, _ := m["name"].(string)
		return strings.HasPrefix(name, "kube-api-access-")
	}
	if spec["serviceAccount"] != nil && spec["serviceAccountName"] != nil {
		delete(spec, "serviceAccount")
	}
	removeListElements(spec, "volumes", injected)
	for _, list := range []string{"containers", "initContainers", "ephemeralContainers"} {
		all, _ := spec[list].([]any)
		for _, c := range all {
			if m, ok := c.(map[string]any); ok {
				removeListElements(m, "volumeMounts", injected)
			}
		}
	}
}

// removeListElements removes elements from a list, and the list with its last element.
func removeListElements(m map[string]any, key string, is func(any) bool) {
	l, ok := m[key].([]any)
	if !ok || !slices.ContainsFunc(l, is) {
		return
	}
	if m[key] = slices.DeleteFunc(l, is); len(m[key].([]any)) == 0 {
		delete(m, key)
	}
}

func cleanJob(obj map[string]any, _ bool) { cleanJobSpec(obj, ChildMap(obj, "spec")) }

func cleanCronJob(obj map[string]any, _ bool) {
	template := ChildMap(obj, "spec", "jobTemplate")
	cleanJobSpec(template, ChildMap(template, "spec"))
}

// cleanJobSpec removes the selector and the labels that tie a Job to its pods by its own UID,
// unless the user ties them.
func cleanJobSpec(job, spec map[string]any) {
	if spec == nil || spec["manualSelector"] == true {
		return
	}
	delete(spec, "selector")
	for _, m := range []map[string]any{ChildMap(job, "metadata"), ChildMap(spec, "template", "metadata")} {
		name, isNamed := m["name"]
		labels := ChildMap(m, "labels")
		removeMatchingKeys(labels, func(key string) bool {
			switch key {
			case "controller-uid", "batch.kubernetes.io/controller-uid":
				return true
			case "job-name", "batch.kubernetes.io/job-name":
				return !isNamed || labels[key] != name
			}
			return false
		})
		if labels != nil && len(labels) == 0 {
			delete(m, "labels")
		}
	}
}

func cleanRolloutAnnotations(obj map[string]any, _ bool) {
	removeMatchingKeys(ChildMap(obj, "metadata", "annotations"), func(k string) bool {
		return strings.HasPrefix(k, "deployment.kubernetes.io/") || k == "deprecated.daemonset.template.generation"
	})
}

func cleanStatefulSet(obj map[string]any, _ bool) {
	claims, _ := ChildMap(obj, "spec")["volumeClaimTemplates"].([]any)
	for _, c := range claims {
		if m, ok := c.(map[string]any); ok {
			deleteKeys(m, "status", "apiVersion", "kind")
		}
	}
}

// cleanClusterRole removes the rules of an aggregating role, which belong to the aggregator.
func cleanClusterRole(obj map[string]any, _ bool) {
	if ChildMap(obj, "aggregationRule") != nil {
		delete(obj, "rules")
	}
}

func cleanAPIService(obj map[string]any, _ bool) {
	deleteKeys(ChildMap(obj, "metadata", "labels"), "kube-aggregator.kubernetes.io/automanaged")
}

// markLabelsUserOwned counts the labels of kinds that the API server labels by their pods as written by a user.
// It does so only where there is no label. In a member there always is one, of Atoll.
func markLabelsUserOwned(live *unstructured.Unstructured, tree *ownerTree) {
	switch live.GroupVersionKind().GroupKind() {
	case schema.GroupKind{Group: "batch", Kind: "Job"}, schema.GroupKind{Kind: "ReplicationController"}:
	default:
		return
	}
	labels := tree.ensureField("metadata").ensureField("labels")
	for key := range ChildMap(live.Object, "metadata", "labels") {
		labels.ensureField(key).applied = true
	}
}

// transferStringDataOwnership transfers ownership to fields that the API server stores under another name than
// users write.
func transferStringDataOwnership(obj *unstructured.Unstructured, tree *ownerTree, last map[string]any) {
	if obj.GroupVersionKind().GroupKind() != (schema.GroupKind{Kind: "Secret"}) {
		return
	}
	if written := tree.childField("stringData"); written != nil {
		data := tree.ensureField("data")
		for key, own := range written.fields {
			node := data.ensureField(key)
			node.applied = node.applied || own.applied
			node.updated = node.updated || own.updated
		}
	}
	if written := ChildMap(last, "stringData"); written != nil {
		data := ChildMap(last, "data")
		if data == nil {
			data = map[string]any{}
			last["data"] = data
		}
		for key := range written {
			data[key] = ""
		}
	}
}

// restoreCRDConversion restores a CRD's own conversion, which the hub stores as None.
func restoreCRDConversion(obj *unstructured.Unstructured, pruned map[string]any) error {
	if obj.GroupVersionKind().GroupKind() != (schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}) {
		return nil
	}
	raw, ok := obj.GetAnnotations()[atoll.AnnotationConversion]
	if !ok {
		return nil
	}
	var conversion map[string]any
	if err := json.Unmarshal([]byte(raw), &conversion); err != nil {
		return fmt.Errorf("annotation %s: %w", atoll.AnnotationConversion, err)
	}
	if spec := ChildMap(pruned, "spec"); spec != nil {
		spec["conversion"] = conversion
	}
	return nil
}
