package fetch

import (
	"cmp"
	"errors"
	"net/url"
	"strings"

	"github.com/Masterminds/semver/v3"

	"atoll.dev/atoll/internal/atoll"
	"atoll.dev/atoll/internal/sources/render"
)

// Bounds of charts.
const (
	// maxIndexBytes is the largest index.yaml.
	maxIndexBytes = 32 << 20
	// maxChartBytes is the largest archive of a chart, and maxUnpackedChart what it may unpack to.
	maxChartBytes    = 16 << 20
	maxUnpackedChart = 2 * render.MaxJobBytes
	// maxChartsBytes is the most that the archives of one child may unpack to, and maxSentCharts what a server may send for them.
	maxChartsBytes = 64 << 20
	maxSentCharts  = 96 << 20
	// maxArchiveEntries is the most files and directories of an archive.
	maxArchiveEntries = 20_000
	// maxVersions is the most versions of a chart.
	maxVersions = 50_000
)

// openCharts prepares the connection to a Helm repository: an index over HTTP, or charts in an OCI registry.
func openCharts(r Request, of place) (repository, error) {
	u, err := url.Parse(r.URL)
	if err == nil && u.Scheme == ociScheme {
		u.Scheme = "https"
		if isServerURL(u) {
			return openChartRegistry(u, r, of)
		}
	} else if err == nil && isServerURL(u) {
		return openChartIndex(u, r, of)
	}
	return nil, newFailure(atoll.ReasonInvalidField, "the URL is not https://HOST/PATH, http://HOST/PATH or oci://HOST/PATH without credentials")
}

// cutRef returns the chart of a ref, and the versions that the Source takes.
func cutRef(ref string) (chart, versions string) {
	chart, versions, _ = strings.Cut(ref, "@")
	return chart, versions
}

// revisionOf returns the revision of a version, whose content has a digest such as sha256:HEX.
func revisionOf(chart, version, digest string) string { return chart + ":" + version + "@" + digest }

// cutRevision returns the parts of a revision.
func cutRevision(revision string) (chart, version, digest string) {
	named, digest, _ := strings.Cut(revision, "@")
	chart, version, _ = strings.Cut(named, ":")
	return chart, version, digest
}

// isLaterVersion reports whether a revision is of a later version of the same chart. Another archive of the same version comes
// after none: its publisher replaced what does not change.
func isLaterVersion(d Descent) bool {
	chart, before, _ := cutRevision(d.Old)
	same, after, _ := cutRevision(d.New)
	old, err := semver.NewVersion(before)
	if err != nil || chart != same {
		return false
	}
	is, err := semver.NewVersion(after)
	return err == nil && is.GreaterThan(old)
}

// chooseVersion returns the version that a Source takes: the stated one, or the latest of a range. Versions that
// are none are left out.
func chooseVersion(of, wanted string, available []string) (string, error) {
	if len(available) > maxVersions {
		return "", newFailure(atoll.ReasonContentTooLarge, "the repository has more than %d versions of %s", maxVersions, of)
	}
	allowed, err := semver.NewConstraint(wanted)
	if err != nil {
		return "", newFailure(atoll.ReasonInvalidField, "spec.ref.version %q is neither a version nor a range of versions", wanted)
	}
	best, bestText := (*semver.Version)(nil), ""
	for _, text := range available {
		v, err := semver.NewVersion(text)
		switch {
		case err != nil || len(text) > maxVersionBytes:
		case text == wanted:
			return text, nil
		case allowed.Check(v) && (best == nil || cmp.Or(v.Compare(best), strings.Compare(text, bestText)) > 0):
			best, bestText = v, text
		}
	}
	if best == nil {
		return "", newFailure(atoll.ReasonVersionMissing, "the repository has no version of %s that %q allows, of %d versions", of, wanted, len(available))
	}
	return bestText, nil
}

// maxVersionBytes is the longest version that is taken.
const maxVersionBytes = 128

// unpackedBytes counts what the archives of a child unpack to.
type unpackedBytes struct{ size int64 }

// readTree returns the files that read unpacks within a bound.
func (u *unpackedBytes) readTree(read func(most int64) (*archiveTree, int64, error)) (*archiveTree, error) {
	t, size, err := read(min(maxUnpackedChart, maxChartsBytes-u.size))
	if err != nil {
		var failure *Failure
		if errors.As(err, &failure) && failure.Reason == atoll.ReasonContentTooLarge && u.size > 0 {
			return nil, errLater
		}
		return nil, err
	}
	u.size += size
	return t, nil
}

// readChart returns the files of a chart's archive.
func (u *unpackedBytes) readChart(archive []byte, chart, version string) (snapshot, error) {
	t, err := u.readTree(func(most int64) (*archiveTree, int64, error) { return readChart(archive, most) })
	if err != nil {
		return snapshot{}, err
	}
	if err := t.checkChart(chart, version); err != nil {
		return snapshot{}, err
	}
	return snapshot{tree: t}, nil
}
