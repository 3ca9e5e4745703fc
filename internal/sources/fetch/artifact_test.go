package fetch

import (
	"crypto/sha256"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/chartstest"
	"atoll.dev/atoll/internal/sources/render"
)

// artifactLayer is a layer of an artifact, with its title where it has one.
type artifactLayer struct {
	title string
	text  []byte
}

// pushArtifact pushes an artifact by ORAS, and returns its digest.
func pushArtifact(t *testing.T, server *httptest.Server, tag, created string, layers ...artifactLayer) string {
	t.Helper()
	of, err := remote.NewRepository(strings.TrimPrefix(server.URL, "https://") + "/shop/files")
	if err != nil {
		t.Fatal(err)
	}
	of.Client = &auth.Client{Client: server.Client(), Credential: auth.StaticCredential(of.Reference.Registry, auth.Credential{Username: chartstest.Username, Password: chartstest.Password})}
	var pushed []ocispec.Descriptor
	for _, l := range layers {
		d := content.NewDescriptorFromBytes("application/vnd.cncf.flux.content.v1.tar+gzip", l.text)
		if l.title != "" {
			d.Annotations = map[string]string{ocispec.AnnotationTitle: l.title}
		}
		if _, err := oras.PushBytes(t.Context(), of, d.MediaType, l.text); err != nil {
			t.Fatal(err)
		}
		pushed = append(pushed, d)
	}
	manifest, err := oras.PackManifest(t.Context(), of, oras.PackManifestVersion1_1, "application/vnd.cncf.flux.config.v1+json", oras.PackManifestOptions{Layers: pushed, ManifestAnnotations: map[string]string{ocispec.AnnotationCreated: created}})
	if err != nil {
		t.Fatal(err)
	}
	if err := of.Tag(t.Context(), manifest, tag); err != nil {
		t.Fatal(err)
	}
	return manifest.Digest.String()
}

const (
	morning = "2026-01-01T08:00:00Z"
	evening = "2026-01-01T20:00:00Z"
)

func TestArtifacts(t *testing.T) {
	server, ca := chartstest.NewRegistry(t, nil)
	right := Request{Type: TypeOCI, URL: strings.Replace(server.URL, "https://", "oci://", 1) + "/shop/files", Username: chartstest.Username, Password: chartstest.Password, CABundle: ca}
	read := func(ref string, change ...func(*Request)) Content {
		t.Helper()
		r := right
		r.Wants = []Want{{ID: "s", Ref: ref, Want: render.Want{Options: render.Options{ReleaseName: "web", Namespace: "shop"}}}}
		for _, fn := range change {
			fn(&r)
		}
		return fetchOne(t, r)
	}
	tarred := func(pairs ...string) artifactLayer {
		return artifactLayer{text: chartstest.NewArchive(t, pairs...)}
	}
	asFlux := pushArtifact(t, server, "flux", morning, tarred("./deploy/a.yaml", configMap, "README.md", "x"))
	pushArtifact(t, server, "directory", morning, artifactLayer{"deploy", chartstest.NewArchive(t, "deploy/a.yaml", configMap, "deploy/b.yaml", configMap)})
	pushArtifact(t, server, "files", morning, artifactLayer{"a.yaml", []byte(configMap)}, artifactLayer{"sub/b.yaml", []byte(configMap)})
	pushArtifact(t, server, "kustomization", morning, tarred("kustomization.yaml", "resources: [b.yaml]\nnamePrefix: p-\n", "b.yaml", configMap))
	pushArtifact(t, server, "1.0.0", morning, tarred("a.yaml", configMap))
	pushArtifact(t, server, "1.2.0", morning, tarred("b.yaml", configMap))
	for tag, layers := range map[string][]artifactLayer{
		"twice":   {tarred("a.yaml", configMap), tarred("a.yaml", configMap)},
		"outside": {tarred("../a.yaml", configMap)},
		"link":    {tarred("a.yaml", "->/etc/passwd")},
		"device":  {tarred("a.yaml", "device")},
		"bomb":    {tarred("a.bin", strings.Repeat(" ", maxUnpackedChart))},
		"nothing": {{text: []byte("a configuration")}},
	} {
		pushArtifact(t, server, tag, morning, layers...)
	}
	for ref, want := range map[string]string{
		"tag@flux": "deploy/a.yaml:1", "digest@" + asFlux: "deploy/a.yaml:1", "tag@directory": "deploy/a.yaml:1, deploy/b.yaml:1", "tag@files": "a.yaml:1, sub/b.yaml:1", "tag@kustomization": "kustomization.yaml:1",
		"version@1.x": "b.yaml:1", "version@1.0.0": "a.yaml:1", "version@2.x": "failure VersionMissing", "tag@gone": "failure RefMissing", "digest@sha256:" + strings.Repeat("0", 64): "failure VersionMissing",
		"tag@twice": "failure ContentInvalid", "tag@outside": "failure ContentInvalid", "tag@link": "problem a.yaml", "tag@device": "failure ContentInvalid", "tag@bomb": "failure ContentTooLarge", "tag@nothing": "failure ContentInvalid",
	} {
		if got := describe(read(ref)); got != want {
			t.Errorf("%s: %s, want %s", ref, got, want)
		}
	}
	if c := read("tag@flux"); c.Commit != "flux@"+asFlux {
		t.Errorf("%+v", c)
	}
	for want, change := range map[atoll.Reason]func(*Request){
		atoll.ReasonCredentialsRefused: func(r *Request) { r.Password = "secret-guess" },
		atoll.ReasonServerNotVerified:  func(r *Request) { r.CABundle = "" },
		atoll.ReasonInvalidField:       func(r *Request) { r.URL = "https://h/a" },
		atoll.ReasonRepositoryMissing:  func(r *Request) { r.URL += "/absent" },
	} {
		if c := read("version@*", change); c.Failure == nil || c.Failure.Reason != want || strings.Contains(c.Failure.Message, "secret-guess") {
			t.Errorf("%+v, want %s", c.Failure, want)
		}
	}
}

// An artifact is later by its version, or by the time that it states. A rollback, and an artifact without a time, are not.
func TestLaterArtifacts(t *testing.T) {
	server, ca := chartstest.NewRegistry(t, nil)
	layer := artifactLayer{"a.yaml", []byte(configMap)}
	early, late := pushArtifact(t, server, "latest", morning, layer), pushArtifact(t, server, "latest", evening, layer)
	unknown := pushArtifact(t, server, "latest", "1970-01-01T00:00:00Z", layer)
	gone := fmt.Sprintf("sha256:%x", sha256.Sum256(nil))
	for _, c := range []struct {
		old, now string
		want     bool
	}{
		{"latest@" + early, "latest@" + late, true}, {"latest@" + late, "latest@" + early, false}, {"latest@" + early, "latest@" + unknown, false}, {"latest@" + gone, "latest@" + late, false},
		{early, late, true}, {"1.2.0@" + late, "1.10.0@" + early, true}, {"1.10.0@" + early, "1.2.0@" + late, false}, {"1.0.0@" + early, "1.0.0@" + late, false},
	} {
		a, err := runFetch(t, Request{Type: TypeOCI, URL: strings.Replace(server.URL, "https://", "oci://", 1) + "/shop/files", Username: chartstest.Username, Password: chartstest.Password, CABundle: ca, Descends: &Descent{Old: c.old, New: c.now}})
		if err != nil || a.Descends != c.want {
			t.Errorf("%s after %s: %+v, %v", c.now, c.old, a, err)
		}
	}
}

// Versions with a v are versions, too: an older one that is made later, such as a fix of an old line, drops nothing of a newer one.
func TestArtifactsOfVersionsWithAPrefix(t *testing.T) {
	server, ca := chartstest.NewRegistry(t, nil)
	layer := artifactLayer{"a.yaml", []byte(configMap)}
	early, late := pushArtifact(t, server, "v1.2.0", morning, layer), pushArtifact(t, server, "v1.1.1", evening, layer)
	for _, c := range []struct {
		old, now string
		want     bool
	}{
		{"v1.2.0@" + early, "v1.1.1@" + late, false}, {"v1.1.1@" + late, "v1.2.0@" + early, true}, {"1.2@" + early, "1.1@" + late, false},
		{"v1.2.0@" + early, "1.1.1@" + late, false}, {"stable@" + early, "1.1.1@" + late, true}, {"1.2@" + early, "1.2@" + late, true},
	} {
		a, err := runFetch(t, Request{Type: TypeOCI, URL: strings.Replace(server.URL, "https://", "oci://", 1) + "/shop/files", Username: chartstest.Username, Password: chartstest.Password, CABundle: ca, Descends: &Descent{Old: c.old, New: c.now}})
		if err != nil || a.Descends != c.want {
			t.Errorf("%s after %s: %+v, %v", c.now, c.old, a, err)
		}
	}
}
