package apply

import (
	"cmp"
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"

	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/agent/ownership"
	"atoll.dev/atoll/internal/atoll"
)

func metaHash(m atoll.NamespaceMeta) string { return atoll.HashJSON(m) }

// namespaces as a resource, which every member serves.
var namespaces = member.Resource{Kind: "Namespace", GroupVersionResource: schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}}

// intendNamespace notes that a namespace may have to be made; an empty name is none. The caller holds mu.
func (e *MemberApplier) intendNamespace(ns string) {
	if ns != "" && !e.foreign[ns] {
		e.book.IntendNamespace(ns)
	}
}

// missingNamespaces lists the namespaces of the keys that are not known to exist.
func (e *MemberApplier) missingNamespaces(keys []atoll.ItemKey) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []string
	for _, key := range keys {
		ns := key.Namespace
		if _, observed := e.book.ObservedItem(key); ns == "" || observed != nil || e.foreign[ns] || slices.Contains(out, ns) {
			continue
		}
		if r, known := e.book.Record(atoll.NamespaceKey(ns)); known && r.Implicit && r.UID == "" && len(r.Claims) == 0 {
			out = append(out, ns)
		}
	}
	return out
}

// isImplicitNamespace reports whether an agent made the namespace for items that were to be in it.
func isImplicitNamespace(live *metav1.PartialObjectMetadata) bool {
	return live.Labels[ownership.LabelTemplateUID] == implicitTemplate || live.Annotations[ownership.AnnotationLeftBehind] == implicitTemplate
}

// ensureNamespace makes a namespace for the objects in it, or brings its labels and annotations up to
// date.
func (e *MemberApplier) ensureNamespace(ctx context.Context, ns string) *Failure {
	e.mu.Lock()
	accounts := e.book.NamespaceAccounts(ns)
	e.mu.Unlock()
	return e.ensureNamespaceAs(ctx, ns, accounts)
}

// ensureNamespaceAs makes or updates a namespace by the rights of one of the ServiceAccounts; nil: by the agent's own.
// A namespace that exists and is not Atoll's is left as it is.
func (e *MemberApplier) ensureNamespaceAs(ctx context.Context, ns string, accounts []string) *Failure {
	key := atoll.NamespaceKey(ns)
	e.mu.Lock()
	r, _ := e.book.Record(key)
	meta, owner := e.book.NamespaceMeta(ns), e.owningBundleOfNamespace(ns)
	e.mu.Unlock()
	if r.UID == "" {
		live, err := e.o.Client.GetMetadata(ctx, namespaces, "", ns)
		switch {
		case err == nil && !isImplicitNamespace(live):
			e.mu.Lock()
			e.book.RecordForeignNamespace(ns)
			e.foreign[ns] = true
			e.mu.Unlock()
			return nil
		case err == nil:
			owner = cmp.Or(live.Labels[atoll.LabelBundleUID], owner)
		case !apierrors.IsNotFound(err):
			return failureFromError(err, key)
		}
	} else {
		owner = r.Label
	}
	account, failure := e.namespaceAccount(ctx, ns, accounts, r.UID != "")
	if failure != nil {
		return failure
	}
	body, err := json.Marshal(namespaceBody(ns, r.UID, owner, meta))
	if err != nil {
		return failureFromError(err, key)
	}
	obj, err := e.o.Client.Apply(ctx, member.Patch{Resource: namespaces, Name: ns, Manager: atoll.FieldManager, Force: true, Body: body})
	if err != nil {
		if r.UID != "" && isUIDMismatch(err) {
			e.scheduleRecheck(key)
		}
		return failureFromError(err, key)
	}
	v := e.observeObject(obj)
	e.mu.Lock()
	e.book.RecordMadeNamespace(ns, ownership.Fact{UID: v.UID, Label: owner, Hash: metaHash(meta), Owned: v.Owned, Account: account})
	e.recordAppliedView(v)
	e.mu.Unlock()
	e.o.Watch.Start(namespaces)
	if r.UID == "" {
		e.o.Log.Info("made namespace", "namespace", ns, "bundle", owner)
	}
	return nil
}

// implicitTemplate stands in the template label of namespaces that the agent
// makes by itself.
const implicitTemplate = "namespace"

func namespaceBody(ns, uid, owner string, meta atoll.NamespaceMeta) map[string]any {
	labels := map[string]string{atoll.LabelBundleUID: owner, ownership.LabelTemplateUID: implicitTemplate}
	for k, v := range meta.Labels {
		if k != corev1NameLabel {
			labels[k] = v
		}
	}
	m := map[string]any{"name": ns, "labels": labels}
	if len(meta.Annotations) > 0 {
		m["annotations"] = meta.Annotations
	}
	if uid != "" {
		m["uid"] = uid
	}
	return map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": m}
}

// corev1NameLabel is set by the API server itself.
const corev1NameLabel = "kubernetes.io/metadata.name"

// markChangedNamespacesDue brings namespaces that the agent made up to date where the manifest has other
// labels and annotations for them than before. The caller holds mu.
func (e *MemberApplier) markChangedNamespacesDue(prev *ownership.BundleHolding, m *atoll.Manifest) {
	for ns, meta := range m.Namespaces {
		if prev != nil && metaHash(prev.Manifest.Namespaces[ns]) == metaHash(meta) {
			continue
		}
		if r, known := e.book.Record(atoll.NamespaceKey(ns)); known && r.Implicit && r.UID != "" {
			e.markDue(r.Key)
		}
	}
}

// owningBundleOfNamespace is the owner of something in the namespace, or a Bundle that has the namespace alone. The caller
// holds mu.
func (e *MemberApplier) owningBundleOfNamespace(ns string) string {
	owner := ""
	if len(e.book.KeysInNamespace(ns)) == 0 {
		for _, uid := range e.book.BundlesWithNamespace(ns) {
			return uid
		}
	}
	for _, key := range e.book.KeysInNamespace(ns) {
		if r, _ := e.book.Record(key); owner == "" || r.Owner < owner {
			owner = r.Owner
		}
	}
	return owner
}

// guardNamespace refuses while something is in the namespace that would be taken
// along and is not there because of the namespace itself.
func (e *MemberApplier) guardNamespace(ctx context.Context, p pendingWork) *Failure {
	e.mu.Lock()
	inside := len(e.book.KeysInNamespace(p.Key.Name))
	e.mu.Unlock()
	if inside > 0 {
		return &Failure{
			Reason: atoll.ReasonWaitsForObjects, Waits: true, First: 300 * time.Millisecond, Most: 15 * time.Second,
			Message: "namespace " + p.Key.Name + " goes after what Atoll applied in it",
		}
	}
	if _, err := e.o.Client.DiscoverAPIs(ctx); err != nil {
		return failureFromError(err, p.Key)
	}
	if silent := e.o.Client.APIs().SilentGroups(); len(silent) > 0 {
		f := discoveryFailure(silent[0])
		f.Message = truncateText("namespace " + p.Key.Name + " is kept while it is not known what is in it: " + f.Message)
		return f
	}
	var waits *Failure
	for _, res := range e.o.Client.APIs().NamespacedResources() {
		f := e.guardAgainstObjectsOfKind(ctx, res, p.Key.Name, p.Key)
		if f != nil && f.Reason != atoll.ReasonWaitsForObjects {
			return f
		}
		if f != nil {
			waits = f
		}
	}
	return waits
}

// comesWithNamespace reports whether the object is in its namespace because of the
// namespace, or because of another object in it, which is judged itself.
func (e *MemberApplier) comesWithNamespace(m *metav1.PartialObjectMetadata, key atoll.ItemKey) bool {
	if isOfKubernetes(m, key) {
		return true
	}
	for _, owner := range m.OwnerReferences {
		res, served := e.o.Client.APIs().LookupKind(schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind))
		if !served || !res.Namespaced {
			return false
		}
	}
	return len(m.OwnerReferences) > 0
}

// isOfKubernetes reports whether Kubernetes makes the object for its namespace.
func isOfKubernetes(m *metav1.PartialObjectMetadata, key atoll.ItemKey) bool {
	switch (schema.GroupKind{Group: key.Group, Kind: key.Kind}) {
	case schema.GroupKind{Kind: "ServiceAccount"}:
		return key.Name == "default"
	case schema.GroupKind{Kind: "ConfigMap"}:
		return key.Name == "kube-root-ca.crt"
	case schema.GroupKind{Kind: "Secret"}:
		return m.Annotations["kubernetes.io/service-account.name"] == "default"
	case schema.GroupKind{Kind: "Event"}, schema.GroupKind{Group: "events.k8s.io", Kind: "Event"},
		schema.GroupKind{Kind: "Endpoints"}, schema.GroupKind{Group: "discovery.k8s.io", Kind: "EndpointSlice"}:
		return true
	}
	return false
}
