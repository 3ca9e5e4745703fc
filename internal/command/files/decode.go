package files

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/yaml"
	sigsyaml "sigs.k8s.io/yaml"
)

// The largest answer of a URL, and its longest time.
const (
	fetchBytes    = 16 << 20
	fetchPatience = 30 * time.Second
)

func fetchURL(ctx context.Context, url string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchPatience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("fetch objects: %w", err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("fetch objects: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answers %s", url, resp.Status)
	}
	text, err := io.ReadAll(io.LimitReader(resp.Body, fetchBytes+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", url, err)
	}
	if len(text) > fetchBytes {
		return nil, fmt.Errorf("%s sends more than %d MiB", url, fetchBytes>>20)
	}
	return text, nil
}

// readDocuments reads the documents of a file.
func (r *objectReader) readDocuments(name string, from io.Reader) {
	text, err := io.ReadAll(from)
	if err != nil {
		r.bad = append(r.bad, fmt.Errorf("%s: %w", name, err))
		return
	}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		if docs, ok := splitJSONStream(text); ok {
			for i, doc := range docs {
				r.readDocument(name, fmt.Sprintf("%s, document %d", name, i+1), doc)
			}
			return
		}
	}
	// YAML, of which JSON is a part.
	docs := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")))))
	for i := 1; ; i++ {
		doc, err := docs.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		place := fmt.Sprintf("%s, document %d", name, i)
		if err != nil {
			r.bad = append(r.bad, fmt.Errorf("%s: %w", place, err))
			return
		}
		raw, err := sigsyaml.YAMLToJSON(doc)
		if err != nil {
			r.bad = append(r.bad, fmt.Errorf("%s: %w%s", place, err, helmTemplateHint(doc)))
			continue
		}
		r.readDocument(name, place, raw)
	}
}

// splitJSONStream splits a stream of JSON values; false where it is none, and YAML may be.
func splitJSONStream(text []byte) (docs []json.RawMessage, ok bool) {
	d := json.NewDecoder(bytes.NewReader(text))
	for {
		var raw json.RawMessage
		if err := d.Decode(&raw); errors.Is(err, io.EOF) {
			return docs, true
		} else if err != nil {
			return nil, false
		}
		docs = append(docs, raw)
	}
}

// readDocument returns a document as JSON; one that is empty or only comments is none.
func (r *objectReader) readDocument(name, place string, raw []byte) {
	if raw = bytes.TrimSpace(raw); len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return
	}
	var fields map[string]any
	if err := utiljson.Unmarshal(raw, &fields); err != nil {
		r.bad = append(r.bad, fmt.Errorf("%s: it is no Kubernetes object, which is a map of fields%s", place, fileFormatHint(name)))
		return
	}
	r.addObjectOrList(name, place, fields)
}

// addObjectOrList takes an object, or those of a List.
func (r *objectReader) addObjectOrList(name, place string, fields map[string]any) {
	u := &unstructured.Unstructured{Object: fields}
	var lacks []string
	for _, f := range []string{"apiVersion", "kind"} {
		if v, ok := fields[f].(string); !ok || v == "" {
			lacks = append(lacks, f)
		}
	}
	switch {
	case len(lacks) > 0:
		r.bad = append(r.bad, fmt.Errorf("%s: it is no Kubernetes object, having no %s%s", place, strings.Join(lacks, " and no "), fileFormatHint(name)))
	case u.GroupVersionKind().Group == "kustomize.config.k8s.io":
		r.bad = append(r.bad, fmt.Errorf("%s: a %s is no object of a cluster%s", place, u.GetKind(), fileFormatHint("kustomization.yaml")))
	case !isList(u):
		r.addObject(u, place)
	default:
		items, _ := fields["items"].([]any)
		for i, item := range items {
			one, ok := item.(map[string]any)
			at := fmt.Sprintf("%s, items[%d]", place, i)
			if !ok {
				r.bad = append(r.bad, fmt.Errorf("%s: it is no Kubernetes object, which is a map of fields", at))
				continue
			}
			if kind := strings.TrimSuffix(u.GetKind(), "List"); kind != "" && one["kind"] == nil && one["apiVersion"] == nil {
				one["apiVersion"], one["kind"] = u.GetAPIVersion(), kind
			}
			r.addObjectOrList(name, at, one)
		}
	}
}

// isList reports whether an object is a v1 List or a FOOList, which have items and no name.
func isList(u *unstructured.Unstructured) bool {
	_, items := u.Object["items"]
	return strings.HasSuffix(u.GetKind(), "List") && items && u.GetName() == ""
}

// fileFormatHint returns the advice what to do about files that other tools read.
func fileFormatHint(name string) string {
	switch strings.ToLower(filepath.Base(name)) {
	case "kustomization.yaml", "kustomization.yml", "kustomization":
		return "; give what `kubectl kustomize DIR` prints to -f -"
	case "chart.yaml", "values.yaml", "chart.lock":
		return "; give what `helm template NAME DIR` prints to -f -"
	}
	return "; name the files that hold objects, or keep others elsewhere"
}

// helmTemplateHint returns the advice where a document looks like a template.
func helmTemplateHint(doc []byte) string {
	if bytes.Contains(doc, []byte("{{")) {
		return "; it looks like a template: give what `helm template NAME DIR` prints to -f -"
	}
	return ""
}
