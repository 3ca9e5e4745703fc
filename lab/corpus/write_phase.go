package corpus

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"atoll.dev/atoll/lab/corpus/compare"
)

// Paths of differences between answers of kubectl.
const (
	answerApply  = "apply"
	answerAgain  = "apply again"
	answerDelete = "delete"
	answerGet    = "get"
)

// maxApplies bounds how often a manifest is applied: a user applies it again when a Namespace or a
// kind was missing.
const maxApplies = 3

// kindLimit bounds the wait for a new kind to be served.
const kindLimit = 10 * time.Second

func (m writeMode) kubectlArguments() []string {
	switch m {
	case modeServerSide:
		return []string{"apply", "--server-side", "-f", streamFile}
	case modeCreate:
		return []string{"create", "-f", streamFile}
	}
	return []string{"apply", "-f", streamFile}
}

// applyManifest writes the manifest to the hub and to the control, as a user does.
func (t *manifestTestRun) applyManifest(ctx context.Context) error {
	var last compare.CommandAnswer
	for i := range maxApplies {
		hub, control, err := t.runKubectlOnBoth(ctx, t.mode.kubectlArguments()...)
		if err != nil {
			return err
		}
		if t.unreadable != nil && control.ExitCode == 0 {
			return fmt.Errorf("kubectl reads a manifest that cannot be compared: %w", t.unreadable)
		}
		name := answerApply
		if i > 0 {
			name = answerAgain
		}
		t.addDifferences(compare.DiffCommandAnswers(compare.Accepted, name, t.hideGeneratedNames(control), t.hideGeneratedNames(hub))...)
		if t.mode == modeCreate {
			return t.recordGeneratedNames(hub, control)
		}
		if hub.ExitCode == 0 && control.ExitCode == 0 || i > 0 && reflect.DeepEqual(control, last) {
			return nil
		}
		last = control
		if err := t.awaitServedKinds(ctx); err != nil {
			return err
		}
	}
	return nil
}

// awaitServedKinds waits for the kinds of the manifest to be served, in the hub and in the control.
func (t *manifestTestRun) awaitServedKinds(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, kindLimit)
	defer cancel()
	for _, c := range t.writtenClusters() {
		for _, o := range t.objects {
			if o.GetKind() != "CustomResourceDefinition" {
				continue
			}
			for {
				seen, err := c.readObject(ctx, idOf(o))
				if err != nil || seen.object == nil || compare.UnsettledReason(seen.object) == "" || ctx.Err() != nil {
					break
				}
				pauseFor(ctx, pollPause)
			}
		}
	}
	return nil
}

func pauseFor(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// generatedSuffix is what the API server adds to metadata.generateName.
const generatedSuffix = "[a-z0-9]{5}"

// namePlaceholder is the generated name of an object in differences.
func namePlaceholder(o *unstructured.Unstructured) string { return o.GetGenerateName() + "*" }

func hasGeneratedName(o *unstructured.Unstructured) bool {
	return o.GetName() == "" && o.GetGenerateName() != ""
}

// hideGeneratedNames replaces generated names in an answer by placeholders.
func (t *manifestTestRun) hideGeneratedNames(a compare.CommandAnswer) compare.CommandAnswer {
	a.Lines = slices.Clone(a.Lines)
	for _, o := range t.objects {
		if !hasGeneratedName(o) {
			continue
		}
		name := regexp.MustCompile(`\b` + regexp.QuoteMeta(o.GetGenerateName()) + generatedSuffix + `\b`)
		for i := range a.Lines {
			a.Lines[i] = name.ReplaceAllLiteralString(a.Lines[i], namePlaceholder(o))
		}
	}
	return a
}

// recordGeneratedNames takes the generated names from the answers, and writes files with them for later
// commands.
func (t *manifestTestRun) recordGeneratedNames(hub, control compare.CommandAnswer) error {
	for c, answer := range map[*cluster]compare.CommandAnswer{t.hub: hub, t.control: control} {
		rest := slices.Clone(answer.Lines)
		names := make([]string, len(t.objects))
		for i, o := range t.objects {
			if !hasGeneratedName(o) {
				continue
			}
			name := regexp.MustCompile(`/(` + regexp.QuoteMeta(o.GetGenerateName()) + generatedSuffix + `) created$`)
			at := slices.IndexFunc(rest, name.MatchString)
			if at < 0 {
				continue
			}
			names[i] = name.FindStringSubmatch(rest[at])[1]
			rest = slices.Delete(rest, at, at+1)
		}
		t.names[c.name] = names
		if err := t.writeManifestWithNames(c); err != nil {
			return err
		}
	}
	for _, m := range t.members {
		t.names[m.name] = t.names[t.hub.name]
	}
	return nil
}

// writeManifestWithNames replaces the manifest of a cluster by one with the generated names.
func (t *manifestTestRun) writeManifestWithNames(c *cluster) error {
	var b strings.Builder
	for i := range t.objects {
		data, err := json.Marshal(t.objectInCluster(c, i).Object)
		if err != nil {
			return fmt.Errorf("the manifest with its names: %w", err)
		}
		fmt.Fprintf(&b, "---\n%s\n", data)
	}
	return os.WriteFile(filepath.Join(t.dirOf(c), streamFile), []byte(b.String()), 0o600)
}

// objectInCluster returns an object of the manifest under its name in a cluster.
func (t *manifestTestRun) objectInCluster(c *cluster, i int) *unstructured.Unstructured {
	o := t.objects[i]
	if names := t.names[c.name]; names != nil && names[i] != "" {
		o = o.DeepCopy()
		o.SetName(names[i])
		o.SetGenerateName("")
	}
	return o
}

// deleteManifest deletes the manifest from the hub and from the control, and compares what is left.
func (t *manifestTestRun) deleteManifest(ctx context.Context) error {
	hub, control, err := t.runKubectlOnBoth(ctx, answerDelete, "-f", streamFile, "--ignore-not-found", "--timeout", (t.limit / phases).String())
	if err != nil {
		return err
	}
	if t.hasOwningKinds() {
		isDeleted := func(line string) bool { return strings.Contains(line, " deleted") }
		hub, control = hub.WithoutLines(isDeleted), control.WithoutLines(isDeleted)
	}
	t.addDifferences(compare.DiffCommandAnswers(compare.Accepted, answerDelete, t.hideGeneratedNames(control), t.hideGeneratedNames(hub))...)
	return t.compareLeftovers(ctx)
}
