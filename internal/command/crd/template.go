package crd

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"atoll.dev/atoll/api/v1alpha1"
	"atoll.dev/atoll/internal/atoll"
)

// toolDomains are the domains of labels and annotations by which a tool of the member recognizes what
// it installed or fills in. Elsewhere the same tool would take the definition for its own, and could
// delete it. A domain counts with all below it.
var toolDomains = []string{
	"addonmanager.kubernetes.io", "argocd.argoproj.io", "cert-manager.io", "config.k8s.io", "kapp.k14s.io", "karmada.io",
	"kubectl.kubernetes.io", "meta.helm.sh", "olm.operatorframework.io", "open-cluster-management.io", "operators.coreos.com", "cattle.io",
	"service.beta.openshift.io", "toolkit.fluxcd.io",
}

// toolKeys are further such keys, with the value that they have; empty: any.
var toolKeys = map[string]string{"app.kubernetes.io/managed-by": "Helm", "olm.managed": "", "olm.owner": "", "olm.owner.kind": "", "olm.owner.namespace": ""}

// isToolMark reports whether a label or annotation is a mark of a tool.
func isToolMark(key, value string) bool {
	if want, known := toolKeys[key]; known && (want == "" || want == value) {
		return true
	}
	domain, _, found := strings.Cut(key, "/")
	return found && slices.ContainsFunc(toolDomains, func(tool string) bool {
		return domain == tool || strings.HasSuffix(domain, "."+tool)
	})
}

// buildTemplate returns the definition as it is written to the hub, and what it leaves out besides the fields
// that each API server fills in.
func (d definition) buildTemplate() (o *unstructured.Unstructured, leftOut []string) {
	o = &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAPIVersion(apiextensionsv1.SchemeGroupVersion.String())
	o.SetKind(definitionKind)
	// The definition's metadata are only these. All else belongs to the member's object: its UID and
	// times, its owners, and the finalizers of controllers that run there.
	o.SetName(d.fullName())
	labels, marks := withoutMarks(d.object.GetLabels())
	annotations, more := withoutMarks(d.object.GetAnnotations())
	if marks = slices.Sorted(slices.Values(append(marks, more...))); len(marks) > 0 {
		leftOut = append(leftOut, "marks of tools in the cluster: "+strings.Join(slices.Compact(marks), ", "))
	}
	if len(labels) > 0 {
		o.SetLabels(labels)
	}
	annotations[atoll.AnnotationConflict] = string(v1alpha1.ConflictAdoptIfSame)
	o.SetAnnotations(annotations)
	spec := runtime.DeepCopyJSON(map[string]any{"spec": d.object.Object["spec"]})["spec"].(map[string]any)
	// The hub calls no conversion webhook: it stores definitions with the strategy None, refuses writes
	// that would lose a field between versions, and keeps a stated webhook for members alone. But the
	// webhook is a service of this member, and its caBundle that of a certificate there. In a member
	// without the service, reading objects of another version than the stored one would fail. Without
	// the field, an apply leaves each member's own conversion as it is: a stated None would remove it.
	delete(spec, "conversion")
	o.Object["spec"] = spec
	if hook := d.spec.webhookName(); hook != "" {
		leftOut = append(leftOut, "its conversion webhook ("+hook+"): clusters with the definition keep theirs, and others convert without one")
	}
	return o, leftOut
}

// webhookName returns what converts objects of the kind; empty without a webhook.
func (s definitionSpec) webhookName() string {
	c := s.Conversion
	switch {
	case c == nil || c.Strategy != apiextensionsv1.WebhookConverter:
		return ""
	case c.Webhook == nil || c.Webhook.ClientConfig == nil:
		return "without an address"
	case c.Webhook.ClientConfig.Service != nil:
		return fmt.Sprintf("service %s/%s", c.Webhook.ClientConfig.Service.Namespace, c.Webhook.ClientConfig.Service.Name)
	case c.Webhook.ClientConfig.URL != nil:
		return *c.Webhook.ClientConfig.URL
	}
	return "without an address"
}

// withoutMarks returns labels or annotations without those of Atoll and of tools. Not listed in marks are
// Atoll's and kubectl's, which are on most objects.
func withoutMarks(all map[string]string) (kept map[string]string, marks []string) {
	kept = map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(all)) {
		switch {
		case atoll.IsOwnMetadataKey(key) || strings.HasPrefix(key, "kubectl.kubernetes.io/"):
		case isToolMark(key, all[key]):
			marks = append(marks, key)
		default:
			kept[key] = all[key]
		}
	}
	return kept, marks
}
