// Package charts renders the Helm charts in deploy/charts as Helm does, for tests of them and
// for the plain manifests that are made of them.
//
// Contract: rendering asks no cluster for anything. Values that the schema of a chart does not
// know are refused. What is rendered is the same for the same chart and values.
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

// Release of a chart.
type Release struct {
	// Chart is the directory that it lies in.
	Chart string
	// Name and Namespace of the release.
	Name, Namespace string
	// Values over those of the chart.
	Values map[string]any
}

// Render gives the manifests in the order in which Helm installs them.
func Render(r Release) (string, error) {
	files, err := render(r)
	if err != nil {
		return "", err
	}
	maps.DeleteFunc(files, func(name, _ string) bool { return filepath.Ext(name) != ".yaml" })
	_, sorted, err := release.SortManifests(files, nil, release.InstallOrder)
	if err != nil {
		return "", fmt.Errorf("sort what chart %s renders: %w", r.Chart, err)
	}
	var out strings.Builder
	for _, m := range sorted {
		out.WriteString("---\n" + strings.TrimSpace(m.Content) + "\n")
	}
	return out.String(), nil
}

// Notes gives what Helm tells whoever has installed the chart.
func Notes(r Release) (string, error) {
	files, err := render(r)
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

// render all files of the chart's templates.
func render(r Release) (map[string]string, error) {
	chart, err := loader.LoadDir(r.Chart)
	if err != nil {
		return nil, fmt.Errorf("read chart %s: %w", r.Chart, err)
	}
	options := common.ReleaseOptions{Name: r.Name, Namespace: r.Namespace, Revision: 1, IsInstall: true}
	values, err := util.ToRenderValues(chart, r.Values, options, common.DefaultCapabilities.Copy())
	if err != nil {
		return nil, fmt.Errorf("values for chart %s: %w", r.Chart, err)
	}
	files, err := engine.Render(chart, values)
	if err != nil {
		return nil, fmt.Errorf("render chart %s: %w", r.Chart, err)
	}
	return files, nil
}

// Objects of manifests, as they stand there.
func Objects(manifests string) (out []*unstructured.Unstructured, err error) {
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
