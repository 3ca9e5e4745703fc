// Package charts renders the Helm charts in deploy/charts as Helm does, for their tests and
// for the plain manifests made of them.
//
// Contract: rendering contacts no cluster but the given one. Values outside the schema of a chart are
// refused. Equal charts and values give equal results.
package charts

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	release "helm.sh/helm/v4/pkg/release/v1/util"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Release is a release of a chart.
type Release struct {
	// Chart is the directory of the chart.
	Chart string
	// Name and Namespace are those of the release.
	Name, Namespace string
	// Values override the chart's values.
	Values map[string]any
	// Served are the kinds that the cluster serves beyond Helm's default ones, as
	// "group/version/Kind".
	Served []string
	// Cluster is where templates look objects up. Nil: no object exists.
	Cluster engine.ClientProvider
}

// RenderManifests returns the manifests in the order in which Helm installs them. Hooks are
// the last ones: those of these charts run after the installation.
func RenderManifests(r Release) (string, error) {
	files, err := renderFiles(r)
	if err != nil {
		return "", err
	}
	maps.DeleteFunc(files, func(name, _ string) bool { return filepath.Ext(name) != ".yaml" })
	hooks, sorted, err := release.SortManifests(files, nil, release.InstallOrder)
	if err != nil {
		return "", fmt.Errorf("sort what chart %s renders: %w", r.Chart, err)
	}
	var out strings.Builder
	for _, m := range sorted {
		out.WriteString("---\n" + strings.TrimSpace(m.Content) + "\n")
	}
	for _, h := range hooks {
		out.WriteString("---\n" + strings.TrimSpace(h.Manifest) + "\n")
	}
	return out.String(), nil
}

// RenderNotes returns the notes that Helm prints after an installation.
func RenderNotes(r Release) (string, error) {
	files, err := renderFiles(r)
	if err != nil {
		return "", err
	}
	for name, text := range files {
		if filepath.Base(name) == "NOTES.txt" {
			return text, nil
		}
	}
	return "", fmt.Errorf("chart %s has no templates/NOTES.txt", r.Chart)
}

// renderFiles renders all files of the chart's templates.
func renderFiles(r Release) (map[string]string, error) {
	chart, err := loader.LoadDir(r.Chart)
	if err != nil {
		return nil, fmt.Errorf("read chart %s: %w", r.Chart, err)
	}
	options := common.ReleaseOptions{Name: r.Name, Namespace: r.Namespace, Revision: 1, IsInstall: true}
	capabilities := common.DefaultCapabilities.Copy()
	capabilities.APIVersions = append(capabilities.APIVersions, r.Served...)
	values, err := util.ToRenderValues(chart, r.Values, options, capabilities)
	if err != nil {
		return nil, fmt.Errorf("values for chart %s: %w", r.Chart, err)
	}
	var files map[string]string
	if r.Cluster == nil {
		files, err = engine.Render(chart, values)
	} else {
		files, err = engine.RenderWithClientProvider(chart, values, r.Cluster)
	}
	if err != nil {
		return nil, fmt.Errorf("render chart %s: %w", r.Chart, err)
	}
	return files, nil
}

// ParseObjects returns the objects in manifests, in their order.
func ParseObjects(manifests string) (out []*unstructured.Unstructured, err error) {
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader([]byte(manifests)), 4096)
	for {
		u := &unstructured.Unstructured{}
		switch err := documents.Decode(&u.Object); {
		case err == io.EOF:
			return out, nil
		case err != nil:
			return nil, fmt.Errorf("read what was rendered: %w", err)
		}
		if len(u.Object) > 0 {
			out = append(out, u)
		}
	}
}
