package apply

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"atoll.dev/atoll/deploy"
	"atoll.dev/atoll/internal/agent/agenttest"
	"atoll.dev/atoll/internal/agent/member"
	"atoll.dev/atoll/internal/atoll"
)

// theAgent is the ServiceAccount of deploy/agent.yaml.
const theAgent = "system:serviceaccount:atoll-system:atoll-agent"

// installManifest in the shared member, as `atoll join` does, what of a manifest is about rights and
// wanted.
func installManifest(t *testing.T, manifest []byte, want func(*unstructured.Unstructured) bool) {
	t.Helper()
	client, err := member.New(agenttest.StartedMemberConfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.DiscoverAPIs(t.Context()); err != nil {
		t.Fatal(err)
	}
	documents := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	for {
		u := &unstructured.Unstructured{}
		if err := documents.Decode(&u.Object); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		if u.GroupVersionKind().Group != "rbac.authorization.k8s.io" && u.GetKind() != "Namespace" || !want(u) {
			continue
		}
		body, err := u.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		res, ok := client.APIs().LookupKind(u.GroupVersionKind())
		if !ok {
			t.Fatalf("the member does not serve %s", u.GroupVersionKind())
		}
		yes := true
		at := client.DynamicClient().Resource(res.GroupVersionResource)
		if _, err := at.Namespace(u.GetNamespace()).Patch(t.Context(), u.GetName(), types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "join", Force: &yes}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTheRightsOfAnAgentByDefault: they do for workloads, from the namespace that is made
// for them to its end. For what they do not allow it is said which rule to add, and when that
// is there, it is applied.
func TestTheRightsOfAnAgentByDefault(t *testing.T) {
	agenttest.SkipIfShort(t)
	installManifest(t, deploy.Agent, func(*unstructured.Unstructured) bool { return true })
	awaitRights(t)
	w := newWorldAs(t, theAgent)
	a := w.configMap("a", "x")
	web := w.newItem("u1", `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: web:1}]}}}`)
	role := w.newClusterItem("u2", "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: "+w.ns+"}\nrules: [{apiGroups: [\"\"], resources: [configmaps], verbs: [get]}]")
	w.storeManifest(newManifest("b1", 1, a, web, role))
	w.expectExists(a.Key)
	w.expectExists(web.Key)
	w.waitForStatus("b1", func(s atoll.RowStatus) bool {
		it, ok := saidOf(s, role.Key)
		return ok && it.Error && it.Reason == atoll.ReasonForbidden && strings.Contains(it.Message, "clusterroles.rbac.authorization.k8s.io: its administrator installs it again by atoll join --allow rbac")
	})
	installManifest(t, deploy.AgentAllow, func(u *unstructured.Unstructured) bool { return u.GetLabels()[deploy.LabelAllow] == "rbac" })
	w.expectExists(role.Key)

	m := newManifest("b1", 2, a, web, role)
	m.Remove, m.DeletedNamespaces = true, []string{w.ns}
	w.storeManifest(m)
	w.waitForStatus("b1", func(s atoll.RowStatus) bool { return s.State == atoll.RowRemoved })
	for _, key := range []atoll.ItemKey{a.Key, web.Key, role.Key, {Kind: "Namespace", Name: w.ns}} {
		w.expectAbsent(key)
	}
}

// awaitRights until the member has added up what the agent may do.
func awaitRights(t *testing.T) {
	t.Helper()
	config := agenttest.StartedMemberConfig()
	config.Impersonate.UserName = theAgent
	client, err := member.New(config)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t}
	pods := schema.GroupVersionResource{Version: "v1", Resource: "pods"}
	w.waitUntil("the agent has its rights", func() (bool, string) {
		_, err := client.DynamicClient().Resource(pods).List(context.WithoutCancel(t.Context()), metav1.ListOptions{Limit: 1})
		return err == nil, ""
	})
}
