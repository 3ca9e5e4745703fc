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

// apply writes the manifest to the hub and to the control, as a user does.
func (t *turn) apply(ctx context.Context) error {
	var last compare.Answer
	for i := range maxApplies {
		hub, control, err := t.askBoth(ctx, t.mode.kubectlArguments()...)
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
		t.add(compare.Commands(compare.Accepted, name, t.hideNames(control), t.hideNames(hub))...)
		if t.mode == modeCreate {
			return t.recordNames(hub, control)
		}
		if hub.ExitCode == 0 && control.ExitCode == 0 || i > 0 && reflect.DeepEqual(control, last) {
			return nil
		}
		last = control
		if err := t.awaitKinds(ctx); err != nil {
			return err
		}
	}
	return nil
}

// awaitKinds waits for the kinds of the manifest to be served, in the hub and in the control.
func (t *turn) awaitKinds(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, kindLimit)
	defer cancel()
	for _, c := range t.writtenClusters() {
		for _, o := range t.objects {
			if o.GetKind() != "CustomResourceDefinition" {
				continue
			}
			for {
				seen, err := c.read(ctx, idOf(o))
				if err != nil || seen.object == nil || compare.Unsettled(seen.object) == "" || ctx.Err() != nil {
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

// placeholderOf is the generated name of an object in differences.
func placeholderOf(o *unstructured.Unstructured) string { return o.GetGenerateName() + "*" }

func isGenerated(o *unstructured.Unstructured) bool {
	return o.GetName() == "" && o.GetGenerateName() != ""
}

// hideNames replaces generated names in an answer by placeholders.
func (t *turn) hideNames(a compare.Answer) compare.Answer {
	a.Lines = slices.Clone(a.Lines)
	for _, o := range t.objects {
		if !isGenerated(o) {
			continue
		}
		name := regexp.MustCompile(`\b` + regexp.QuoteMeta(o.GetGenerateName()) + generatedSuffix + `\b`)
		for i := range a.Lines {
			a.Lines[i] = name.ReplaceAllLiteralString(a.Lines[i], placeholderOf(o))
		}
	}
	return a
}

// recordNames takes the generated names from the answers, and writes files with them for later
// commands.
func (t *turn) recordNames(hub, control compare.Answer) error {
	for c, answer := range map[*cluster]compare.Answer{t.hub: hub, t.control: control} {
		rest := slices.Clone(answer.Lines)
		names := make([]string, len(t.objects))
		for i, o := range t.objects {
			if !isGenerated(o) {
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
		if err := t.writeNamed(c); err != nil {
			return err
		}
	}
	for _, m := range t.members {
		t.names[m.name] = t.names[t.hub.name]
	}
	return nil
}

// writeNamed replaces the manifest of a cluster by one with the generated names.
func (t *turn) writeNamed(c *cluster) error {
	var b strings.Builder
	for i := range t.objects {
		data, err := json.Marshal(t.objectIn(c, i).Object)
		if err != nil {
			return fmt.Errorf("the manifest with its names: %w", err)
		}
		fmt.Fprintf(&b, "---\n%s\n", data)
	}
	return os.WriteFile(filepath.Join(t.dirOf(c), streamFile), []byte(b.String()), 0o600)
}

// objectIn returns an object of the manifest under its name in a cluster.
func (t *turn) objectIn(c *cluster, i int) *unstructured.Unstructured {
	o := t.objects[i]
	if names := t.names[c.name]; names != nil && names[i] != "" {
		o = o.DeepCopy()
		o.SetName(names[i])
		o.SetGenerateName("")
	}
	return o
}

// delete deletes the manifest from the hub and from the control, and compares what is left.
func (t *turn) delete(ctx context.Context) error {
	hub, control, err := t.askBoth(ctx, answerDelete, "-f", streamFile, "--ignore-not-found", "--timeout", (t.limit / phases).String())
	if err != nil {
		return err
	}
	if t.hasOwners() {
		isDeleted := func(line string) bool { return strings.Contains(line, " deleted") }
		hub, control = hub.Without(isDeleted), control.Without(isDeleted)
	}
	t.add(compare.Commands(compare.Accepted, answerDelete, t.hideNames(control), t.hideNames(hub))...)
	return t.compareRest(ctx)
}
