package session

import (
	"errors"
	"fmt"
	"strings"

	"atoll.dev/atoll/internal/atoll"
)

const (
	// maxManifestValues is the number of values of a manifest, counted down to manifestDepth, that an agent
	// decodes. An item counts about 16. The contents of objects lie deeper, and are kept as bytes.
	maxManifestValues = 400_000
	manifestDepth     = 4
	// maxManifestElements is the number of items, tombstones and other elements of a manifest, counted down to
	// elementDepth. An element that is null takes as much memory as any other.
	maxManifestElements = 30_000
	elementDepth        = 2
	// valueMemory is the memory of a value beside its text, elementMemory of an element, and manifestOverhead of a
	// manifest without any, in bytes. The overhead also bounds the number of manifests that wait to be stored.
	valueMemory      = 64
	elementMemory    = 320
	manifestOverhead = 4 << 10
	// maxExpressionBytes bounds the different expressions of a manifest, which take 300 times their length when they
	// are compiled. A policy has at most 16 KiB.
	maxExpressionBytes = 64 << 10
	// maxPathBytes bounds the different paths of feedback of a manifest, which take 50 times their length when they are
	// compiled. The rules of a policy have at most 64 times 16 of 512 bytes.
	maxPathBytes = 512 << 10
	// maxKeyPart is the longest part of an object's key.
	maxKeyPart = 253
)

// countJSONValues counts the elements, fields and containers of JSON down to a depth, without decoding it.
// A text that is no JSON has a count, too.
func countJSONValues(text []byte, depth int) int {
	n, level := 0, 0
	quoted, escaped := false, false
	for _, c := range text {
		switch {
		case escaped:
			escaped = false
		case quoted:
			escaped, quoted = c == '\\', c != '"'
		case c == '"':
			quoted = true
		case c == '}' || c == ']':
			level--
		case c == ',' || c == '{' || c == '[':
			if c != ',' {
				level++
			}
			if level <= depth {
				n++
			}
		}
	}
	return n
}

// manifestMemory returns about how much memory an encoded manifest takes when it is decoded, in bytes.
func manifestMemory(text []byte) int {
	return manifestOverhead + len(text) + valueMemory*countJSONValues(text, manifestDepth) + elementMemory*countJSONValues(text, elementDepth)
}

// checkManifestForm returns the first part of a manifest that no hub sends. The agent's administrator
// permits kinds and namespaces by the keys of items, so that a key must name the object that is applied.
func checkManifestForm(m *atoll.Manifest) error {
	if !isValidSecretNameSuffix(m.Bundle) {
		return errors.New("the UID of the bundle has a form that no UID has")
	}
	for i := range m.Items {
		if err := checkItemForm(&m.Items[i]); err != nil {
			return fmt.Errorf("item %d: %w", i, err)
		}
	}
	if err := checkAssessmentForms(m); err != nil {
		return err
	}
	if err := checkHookForms(m); err != nil {
		return err
	}
	for i := range m.Tombstones {
		if err := checkKeyForm(m.Tombstones[i].Key); err != nil {
			return fmt.Errorf("tombstone %d: %w", i, err)
		}
	}
	return checkNamespaceForms(m)
}

// checkItemForm returns an error for an item that no hub sends.
func checkItemForm(it *atoll.RenderedItem) error {
	if err := checkKeyForm(it.Key); err != nil {
		return err
	}
	if it.APIVersion != "" && !it.Key.IsInGroupOf(it.APIVersion) {
		return errors.New("its key and its apiVersion are of different groups")
	}
	if it.ServiceAccount != "" && !atoll.IsQualifiedServiceAccount(it.ServiceAccount) {
		return errors.New("it names no ServiceAccount")
	}
	if !atoll.IsWave(it.Wave) {
		return errors.New("its wave has a number that no wave has")
	}
	if it.Hook != nil {
		if err := it.Hook.CheckForm(); err != nil {
			return err
		}
	}
	if it.Approval != "" && !atoll.IsDriftID(it.Approval) {
		return errors.New("its approval has a form that no approval has")
	}
	return nil
}

// checkHookForms returns an error for hooks, or a name of the content for which they run, that no hub sends.
func checkHookForms(m *atoll.Manifest) error {
	hooks := 0
	for i := range m.Items {
		if m.Items[i].Hook != nil {
			hooks++
		}
	}
	switch {
	case hooks > atoll.MaxHooks:
		return fmt.Errorf("it has %d hooks, and at most %d are possible", hooks, atoll.MaxHooks)
	case hooks > 0 && !atoll.IsHookRun(m.HookRun), hooks == 0 && m.HookRun != "":
		return errors.New("the name of the content for which hooks run has a form that no such name has")
	case m.RemovalHooks != "" && (!m.Remove || atoll.CheckRemovalHooks(m.RemovalHooks) != nil):
		return errors.New("its order about the hooks of the removal has a form that no such order has")
	}
	return nil
}

// checkAssessmentForms returns an error for assessments that no hub sends. Items that share one cost nothing.
func checkAssessmentForms(m *atoll.Manifest) error {
	checked := map[*atoll.Assessment]bool{}
	for i := range m.Items {
		a := m.Items[i].Assessment
		if a == nil || checked[a] {
			continue
		}
		checked[a] = true
		if err := a.CheckForm(); err != nil {
			return fmt.Errorf("item %d: %w", i, err)
		}
	}
	if tooLarge := measureRules(m); tooLarge != nil {
		return tooLarge
	}
	return nil
}

// measureRules returns why no agent compiles the rules of a manifest; nil: agents do.
func measureRules(m *atoll.Manifest) *OrderTooLargeError {
	var expressions, paths atoll.ExpressionTexts
	added := map[*atoll.Assessment]bool{}
	for i := range m.Items {
		if a := m.Items[i].Assessment; a != nil && !added[a] {
			added[a] = true
			expressions.Add(a.Health, a.Completion)
			paths.AddPaths(a.Feedback)
		}
	}
	if n := expressions.Bytes(); n > maxExpressionBytes {
		return &OrderTooLargeError{n, maxExpressionBytes, "bytes of different expressions in rules"}
	}
	if n := paths.Bytes(); n > maxPathBytes {
		return &OrderTooLargeError{n, maxPathBytes, "bytes of different paths in rules"}
	}
	return nil
}

// checkNamespaceForms returns an error for a namespace that no hub sends.
func checkNamespaceForms(m *atoll.Manifest) error {
	for namespace, meta := range m.Namespaces {
		if !isPathSegment(namespace) {
			return errors.New("a namespace with labels has a name that no namespace has")
		}
		if meta.ServiceAccount != "" && !atoll.IsQualifiedServiceAccount(meta.ServiceAccount) {
			return errors.New("a namespace names no ServiceAccount")
		}
	}
	for _, namespace := range m.DeletedNamespaces {
		if !isPathSegment(namespace) {
			return errors.New("a deleted namespace has a name that no namespace has")
		}
	}
	return nil
}

// checkKeyForm returns an error for a key that names no object of an API.
func checkKeyForm(key atoll.ItemKey) error {
	switch {
	case !isPathSegment(key.Kind), key.Group != "" && !isPathSegment(key.Group):
		return errors.New("its key has no kind of an API")
	case !isPathSegment(key.Name), key.Namespace != "" && !isPathSegment(key.Namespace):
		return errors.New("its key has a name that no object has")
	}
	return nil
}

// isPathSegment reports whether a text is one segment of the path of an API. Names of Kubernetes have
// at most 253 bytes.
func isPathSegment(text string) bool {
	return text != "" && text != "." && text != ".." && len(text) <= maxKeyPart && !strings.ContainsAny(text, "/%")
}

// isValidSecretNameSuffix reports whether a text may end the name of a Secret, in which the agent stores the
// bundle.
func isValidSecretNameSuffix(text string) bool {
	if text == "" || len(text) > idBytes || strings.Trim(text, "-") != text {
		return false
	}
	return strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == ""
}
