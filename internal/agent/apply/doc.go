// Package apply makes a member match its Bundles, and keeps it so.
//
// Contract:
//
//   - Upsert returns once the manifest is in the member's store. Run executes it later.
//     Both work without the hub.
//   - Intent is stored before an object is created, and its UID after it, in one
//     write for each shard and pass. Labels of the object repair a crash in between.
//   - Each object is created in a pass that stored its intent first. Its labels name
//     the Bundle, the template, and whether it existed before, so that Recover finds
//     lost records.
//   - Replicas that an HPA of the member owns are handed over before the HPA exists,
//     and taken back after it is deleted or has another target. In between they
//     never have a value that neither the HPA nor the hub requested.
//   - Changed is called for every Bundle with changed claims, whatever changed them.
//   - Atoll's objects are applied with force, guarded by their UID. Other objects
//     are touched only as the Bundle's conflict resolution permits.
//   - An object that the member's policy forbids is neither applied nor corrected,
//     and is reported. An existing object stays. Writes in a namespace use the
//     ServiceAccount that the policy names for it.
//   - Deletion is by UID, only for tombstones (package ownership decides), only while
//     the fence holds, and is reported only once the object is confirmed deleted.
//   - A failing object delays no other object of its wave: each has its own backoff and
//     reason. Within a pass namespaces and CRDs come first, webhooks last.
//   - A hook runs once for a content of its Bundle: the run is stored before its object is
//     created, and how it ended before the object is deleted.
//   - A removal runs its hooks from the content that is held, once each: those before it, the
//     deletion of the other objects, those after it. A failed one stops it.
//   - New content of a later wave waits until the wave before is applied and healthy.
//     Health alone decides it. Open waves are not stored, so a restart begins with the first.
//   - The Engine may be called from any goroutine. Run is called once.
package apply
