package join

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/internal/trust"
)

func TestManifestHoldsTheJoinAndNothingElseChanges(t *testing.T) {
	o := &options{name: "tokyo-1", hub: "hub:6444", caHash: "sha256:" + strings.Repeat("0", 64), token: trust.NewToken().Reveal(), image: "registry/atoll:1"}
	if err := o.validate(); err != nil {
		t.Fatal(err)
	}
	objects, err := o.manifest()
	if err != nil {
		t.Fatal(err)
	}
	kinds := []string{}
	for _, u := range objects {
		kinds = append(kinds, u.GetKind())
		switch u.GetKind() {
		case "Secret":
			data, _, _ := unstructured.NestedStringMap(u.Object, "stringData")
			if data["name"] != o.name || data["hub"] != o.hub || data["caHash"] != o.caHash || data["token"] != o.token {
				t.Errorf("the join Secret holds %v", data)
			}
			if u.GetName() != secretName {
				t.Errorf("the Secret is named %s", u.GetName())
			}
		case "Deployment":
			if !strings.Contains(asYAML(t, u), "image: registry/atoll:1") {
				t.Error("the image was not set")
			}
			if strings.Contains(asYAML(t, u), o.token) {
				t.Error("the token is in the Deployment")
			}
			if u.GetName() != agentName {
				t.Errorf("the Deployment is named %s", u.GetName())
			}
		}
	}
	if got := strings.Join(kinds, " "); got != "Namespace ServiceAccount ClusterRole ClusterRoleBinding Secret Deployment" {
		t.Errorf("the manifest has %s", got)
	}
}

func asYAML(t *testing.T, u *unstructured.Unstructured) string {
	var b strings.Builder
	if err := printManifest(&b, []*unstructured.Unstructured{u}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestWhatCannotWorkIsRefusedBeforeAnythingIsDialled(t *testing.T) {
	good := options{name: "a", hub: "h:1", caHash: "sha256:" + strings.Repeat("0", 64), token: trust.NewToken().Reveal()}
	for name, spoil := range map[string]func(*options){
		"name":  func(o *options) { o.name = "A_b" },
		"hash":  func(o *options) { o.caHash = "sha256:12" },
		"token": func(o *options) { o.token = "x" },
	} {
		t.Run(name, func(t *testing.T) {
			o := good
			spoil(&o)
			if err := o.validate(); err == nil {
				t.Error("it was let through")
			}
		})
	}
}
