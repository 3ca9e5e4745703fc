package render

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/interpret"
)

// cleaner takes out of an object what its kind's own API server, or a controller,
// fills in. loose tells that ownership says nothing, so that what may have been
// filled in must be taken for it.
type cleaner func(obj map[string]any, loose bool)

var cleaners = map[schema.GroupKind]cleaner{
	{Kind: "Namespace"}:                                       cleanNamespace,
	{Kind: "Service"}:                                         cleanService,
	{Kind: "ServiceAccount"}:                                  cleanServiceAccount,
	{Kind: "Secret"}:                                          cleanSecret,
	{Kind: "PersistentVolumeClaim"}:                           cleanClaim,
	{Kind: "PersistentVolume"}:                                cleanVolume,
	{Kind: "Pod"}:                                             cleanPod,
	{Group: "batch", Kind: "Job"}:                             cleanJob,
	{Group: "batch", Kind: "CronJob"}:                         cleanCronJob,
	{Group: "apps", Kind: "Deployment"}:                       cleanRollout,
	{Group: "apps", Kind: "ReplicaSet"}:                       cleanRollout,
	{Group: "apps", Kind: "DaemonSet"}:                        cleanRollout,
	{Group: "apps", Kind: "StatefulSet"}:                      cleanStatefulSet,
	{Group: "rbac.authorization.k8s.io", Kind: "ClusterRole"}: cleanClusterRole,
	{Group: "apiregistration.k8s.io", Kind: "APIService"}:     cleanAPIService,
}

// clean changes obj in place.
func clean(obj *unstructured.Unstructured, loose bool) {
	meta := child(obj.Object, "metadata")
	remove(child(meta, "labels"), own)
	remove(child(meta, "annotations"), own)
	if fs, ok := meta["finalizers"].([]any); ok {
		meta["finalizers"] = slices.DeleteFunc(fs, func(f any) bool { s, _ := f.(string); return hubFinalizer(s) })
	}
	for _, path := range interpret.PodTemplates(obj) {
		if v, ok := interpret.Lookup(obj.Object, path); ok {
			if spec, ok := v.(map[string]any); ok {
				cleanPodSpec(spec)
			}
		}
	}
	if c, ok := cleaners[obj.GroupVersionKind().GroupKind()]; ok {
		c(obj.Object, loose)
	}
}

// child gives a nested map, nil when there is none.
func child(m map[string]any, path ...string) map[string]any {
	for _, p := range path {
		m, _ = m[p].(map[string]any)
	}
	return m
}

func remove(m map[string]any, is func(string) bool) {
	for k := range m {
		if is(k) {
			delete(m, k)
		}
	}
}

func drop(m map[string]any, keys ...string) {
	for _, k := range keys {
		delete(m, k)
	}
}

func cleanNamespace(obj map[string]any, _ bool) {
	drop(child(obj, "metadata", "labels"), "kubernetes.io/metadata.name")
	delete(obj, "spec")
}

func cleanService(obj map[string]any, loose bool) {
	spec := child(obj, "spec")
	if spec == nil {
		return
	}
	cleanDummies(spec)
	if !loose {
		return
	}
	if spec["clusterIP"] != "None" {
		drop(spec, "clusterIP", "clusterIPs")
	}
	drop(spec, "clusterIPs", "ipFamilies", "ipFamilyPolicy", "healthCheckNodePort")
	ports, _ := spec["ports"].([]any)
	for _, p := range ports {
		if m, ok := p.(map[string]any); ok {
			delete(m, "nodePort")
		}
	}
}

// cleanDummies takes out what the hub gives a Service for want of addresses: whoever applies
// what he got from the hub states it, and no member may be asked for it.
func cleanDummies(spec map[string]any) {
	dummy := func(v any) bool { return v == atoll.DummyIPv4 || v == atoll.DummyIPv6 }
	if dummy(spec["clusterIP"]) {
		delete(spec, "clusterIP")
	}
	filter(spec, "clusterIPs", dummy)
	if fmt.Sprint(spec["healthCheckNodePort"]) == strconv.Itoa(atoll.DummyHealthCheckPort) {
		delete(spec, "healthCheckNodePort")
	}
}

func cleanServiceAccount(obj map[string]any, _ bool) {
	name, _ := child(obj, "metadata")["name"].(string)
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
	drop(child(obj, "data"), "ca.crt", "namespace", "token")
	drop(child(obj, "metadata", "annotations"), "kubernetes.io/service-account.uid")
	drop(child(obj, "metadata", "labels"), "kubernetes.io/legacy-token-last-used")
}

func cleanClaim(obj map[string]any, loose bool) {
	notes := child(obj, "metadata", "annotations")
	if _, bound := notes["pv.kubernetes.io/bind-completed"]; bound || loose {
		drop(child(obj, "spec"), "volumeName")
	}
	drop(notes, "pv.kubernetes.io/bind-completed", "pv.kubernetes.io/bound-by-controller",
		"volume.kubernetes.io/selected-node", "volume.kubernetes.io/storage-provisioner",
		"volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-resizer")
}

func cleanVolume(obj map[string]any, _ bool) {
	drop(child(obj, "spec", "claimRef"), "uid", "resourceVersion")
	drop(child(obj, "metadata", "annotations"), "pv.kubernetes.io/bound-by-controller")
}

func cleanPod(obj map[string]any, loose bool) {
	if loose {
		drop(child(obj, "spec"), "nodeName", "priority", "preemptionPolicy")
	}
}

// cleanPodSpec is for pods anywhere: what the member's own admission puts into pods
// must not come from elsewhere, and one of two names of one field is enough.
func cleanPodSpec(spec map[string]any) {
	injected := func(v any) bool {
		m, _ := v.(map[string]any)
		name, _ := m["name"].(string)
		return strings.HasPrefix(name, "kube-api-access-")
	}
	if spec["serviceAccount"] != nil && spec["serviceAccountName"] != nil {
		delete(spec, "serviceAccount")
	}
	filter(spec, "volumes", injected)
	for _, list := range []string{"containers", "initContainers", "ephemeralContainers"} {
		all, _ := spec[list].([]any)
		for _, c := range all {
			if m, ok := c.(map[string]any); ok {
				filter(m, "volumeMounts", injected)
			}
		}
	}
}

// filter takes elements out of a list, and the list with its last one.
func filter(m map[string]any, key string, is func(any) bool) {
	l, ok := m[key].([]any)
	if !ok || !slices.ContainsFunc(l, is) {
		return
	}
	if m[key] = slices.DeleteFunc(l, is); len(m[key].([]any)) == 0 {
		delete(m, key)
	}
}

func cleanJob(obj map[string]any, _ bool) { cleanJobSpec(obj, child(obj, "spec")) }

func cleanCronJob(obj map[string]any, _ bool) {
	template := child(obj, "spec", "jobTemplate")
	cleanJobSpec(template, child(template, "spec"))
}

// cleanJobSpec takes out the selector and the labels that tie a Job to its pods
// by its own UID, unless the user ties them.
func cleanJobSpec(job, spec map[string]any) {
	if spec == nil || spec["manualSelector"] == true {
		return
	}
	delete(spec, "selector")
	for _, m := range []map[string]any{child(job, "metadata"), child(spec, "template", "metadata")} {
		labels := child(m, "labels")
		drop(labels, "controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name")
		if labels != nil && len(labels) == 0 {
			delete(m, "labels")
		}
	}
}

func cleanRollout(obj map[string]any, _ bool) {
	remove(child(obj, "metadata", "annotations"), func(k string) bool {
		return strings.HasPrefix(k, "deployment.kubernetes.io/") || k == "deprecated.daemonset.template.generation"
	})
}

func cleanStatefulSet(obj map[string]any, _ bool) {
	claims, _ := child(obj, "spec")["volumeClaimTemplates"].([]any)
	for _, c := range claims {
		if m, ok := c.(map[string]any); ok {
			drop(m, "status", "apiVersion", "kind")
		}
	}
}

// cleanClusterRole: the rules of an aggregating role are the aggregator's.
func cleanClusterRole(obj map[string]any, _ bool) {
	if child(obj, "aggregationRule") != nil {
		delete(obj, "rules")
	}
}

func cleanAPIService(obj map[string]any, _ bool) {
	drop(child(obj, "metadata", "labels"), "kube-aggregator.kubernetes.io/automanaged")
}

// aliases gives fields that the API server stores under another name than users
// write them the ownership of what was written.
func aliases(obj *unstructured.Unstructured, tree *owners, last map[string]any) {
	if obj.GroupVersionKind().GroupKind() != (schema.GroupKind{Kind: "Secret"}) {
		return
	}
	if written := tree.field("stringData"); written != nil {
		data := tree.descendField("data")
		for key, own := range written.fields {
			node := data.descendField(key)
			node.applied = node.applied || own.applied
			node.updated = node.updated || own.updated
		}
	}
	if written := child(last, "stringData"); written != nil {
		data := child(last, "data")
		if data == nil {
			data = map[string]any{}
			last["data"] = data
		}
		for key := range written {
			data[key] = ""
		}
	}
}

// restoreConversion gives a CRD its own conversion back, which the hub stores as
// None.
func restoreConversion(obj *unstructured.Unstructured, pruned map[string]any) error {
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
	if spec := child(pruned, "spec"); spec != nil {
		spec["conversion"] = conversion
	}
	return nil
}
