package render

import (
	"fmt"
	"regexp"
	"strings"

	"atoll.dev/atoll/api/v1alpha1"
)

// image is a reference in its parts: registry/repository:tag@digest. Only the
// repository is always there.
type image struct{ registry, repository, tag, digest string }

var (
	registryForm   = regexp.MustCompile(`^(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*)(:[0-9]{1,5})?$`)
	repositoryForm = regexp.MustCompile(`^[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*(/[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*)*$`)
	tagForm        = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)
	digestForm     = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9]*([-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}$`)
)

// parseImage splits an image reference. The first part of a path is a registry when
// it could not be a part of a repository on the default registry: it has a dot or a
// port, or is localhost.
func parseImage(ref string) (image, error) {
	var im image
	rest, digest, hasDigest := strings.Cut(ref, "@")
	if hasDigest && !digestForm.MatchString(digest) {
		return im, fmt.Errorf("%q is not an image: %q is not a digest", ref, digest)
	}
	im.digest = digest
	if slash, colon := strings.LastIndexByte(rest, '/'), strings.LastIndexByte(rest, ':'); colon > slash {
		im.tag = rest[colon+1:]
		if !tagForm.MatchString(im.tag) {
			return im, fmt.Errorf("%q is not an image: %q is not a tag", ref, im.tag)
		}
		rest = rest[:colon]
	}
	if first, path, ok := strings.Cut(rest, "/"); ok && isRegistry(first) {
		im.registry, rest = first, path
		if !registryForm.MatchString(first) {
			return im, fmt.Errorf("%q is not an image: %q is not a registry", ref, first)
		}
	}
	im.repository = rest
	if !repositoryForm.MatchString(rest) {
		return im, fmt.Errorf("%q is not an image: %q is not a repository", ref, rest)
	}
	return im, nil
}

func isRegistry(s string) bool {
	return s == "localhost" || strings.ContainsAny(s, ".:") || strings.ToLower(s) != s
}

func (im image) String() string {
	s := im.repository
	if im.registry != "" {
		s = im.registry + "/" + s
	}
	if im.tag != "" {
		s += ":" + im.tag
	}
	if im.digest != "" {
		s += "@" + im.digest
	}
	return s
}

// overrideImage changes one component. A tag that is replaced takes the digest with
// it, which would otherwise go on deciding what runs.
func overrideImage(ref string, o v1alpha1.ImageOverrider) (string, error) {
	im, err := parseImage(ref)
	if err != nil {
		return "", err
	}
	switch o.Component {
	case v1alpha1.ImageRegistry:
		im.registry = operate(im.registry, o)
	case v1alpha1.ImageRepository:
		im.repository = operate(im.repository, o)
	case v1alpha1.ImageTag:
		switch {
		case o.Operator == v1alpha1.OverrideAdd && im.digest != "":
			return "", fmt.Errorf("cannot add %q to the tag of %q: it has a digest, which decides what runs", o.Value, ref)
		case o.Operator == v1alpha1.OverrideReplace && strings.Contains(o.Value, ":"):
			im.tag, im.digest = "", o.Value
		default:
			im.tag, im.digest = operate(im.tag, o), ""
		}
	default:
		return "", fmt.Errorf("images have no component %q", o.Component)
	}
	changed := im.String()
	back, err := parseImage(changed)
	if err != nil {
		return "", fmt.Errorf("%s %s of %q: %w", o.Operator, o.Component, ref, err)
	}
	// A registry may bring the beginning of a path along; nothing else spills over.
	if back.tag != im.tag || back.digest != im.digest || o.Component != v1alpha1.ImageRegistry && back != im {
		return "", fmt.Errorf("%s %s of %q: %q is not a %s", o.Operator, o.Component, ref, o.Value, strings.ToLower(string(o.Component)))
	}
	return changed, nil
}

func operate(old string, o v1alpha1.ImageOverrider) string {
	switch o.Operator {
	case v1alpha1.OverrideAdd:
		return old + o.Value
	case v1alpha1.OverrideRemove:
		return ""
	}
	return o.Value
}
