//! The memory of a process, told by texts of the system's files.

use super::*;

const MIB: u64 = 1 << 20;
const INFO: (&str, &str) = (
    "/proc/meminfo",
    "MemTotal:       16777216 kB\nMemFree:          100000 kB\nMemAvailable:   12582912 kB\n",
);
const TWO: (&str, &str) = (
    "/proc/self/mountinfo",
    "22 1 0:21 / /proc rw - proc proc rw\n30 22 0:27 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
);
const ONE: (&str, &str) = (
    "/proc/self/mountinfo",
    "35 31 0:31 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
     36 31 0:32 /docker/abc /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
);

fn memory(files: &[(&str, &str)]) -> SystemMemory {
    let read = |path: &Path| {
        let file = files.iter().find(|(name, _)| Path::new(name) == path)?;
        Some(file.1.to_string())
    };
    SystemMemory::by(&read, &groups(&read)).unwrap()
}

#[test]
fn a_process_without_limits_has_what_the_machine_has() {
    let all = memory(&[INFO, TWO, ("/proc/self/cgroup", "0::/user.slice\n")]);
    let expected = SystemMemory { total: 16384 * MIB, available: 12288 * MIB, address_space: None };
    assert_eq!(all, expected);
    assert_eq!(all.threads(64), 64);
    assert_eq!(all.beside_threads(64), all.available);
    assert_eq!(SystemMemory::by(&|_| None, &HashSet::new()), None);
}

#[test]
fn the_least_of_nested_groups_counts() {
    let group = |outer: &'static str, high: &'static str| {
        memory(&[
            INFO,
            TWO,
            ("/proc/self/cgroup", "0::/batch/job 7\n"),
            ("/sys/fs/cgroup/batch/job 7/memory.max", "1073741824\n"),
            ("/sys/fs/cgroup/batch/job 7/memory.high", high),
            ("/sys/fs/cgroup/batch/job 7/memory.current", "314572800\n"),
            ("/sys/fs/cgroup/batch/job 7/memory.stat", "anon 1\nfile 9\ninactive_file 104857600\n"),
            ("/sys/fs/cgroup/batch/memory.max", outer),
            ("/sys/fs/cgroup/batch/memory.current", "734003200\n"),
        ])
    };
    // Of 1 GiB, 300 MiB are used, and 100 of those hold pages that can go.
    let own = group("max\n", "max\n");
    assert_eq!((own.total, own.available), (1024 * MIB, 824 * MIB));
    let around = group("838860800\n", "max\n");
    assert_eq!((around.total, around.available), (800 * MIB, 100 * MIB));
    let slowed = group("max\n", "524288000\n");
    assert_eq!((slowed.total, slowed.available), (500 * MIB, 300 * MIB));
    let full = group("734003200\n", "max\n");
    assert_eq!(full.available, 0);
}

#[test]
fn a_container_sees_its_group_at_the_top_of_the_mount() {
    for path in ["4:memory:/docker/abc\n", "5:cpu,memory:/docker/abc\n", "4:memory:/\n"] {
        let all = memory(&[
            INFO,
            ONE,
            ("/proc/self/cgroup", path),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n"),
            ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "419430400\n"),
            (
                "/sys/fs/cgroup/memory/memory.stat",
                "inactive_file 7\ntotal_inactive_file 209715200\n",
            ),
        ]);
        assert_eq!((all.total, all.available), (512 * MIB, 312 * MIB), "{path}");
    }
    // What version 1 says where there is no limit.
    let free = memory(&[
        INFO,
        ONE,
        ("/proc/self/cgroup", "4:memory:/docker/abc\n"),
        ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
        ("/sys/fs/cgroup/memory/memory.usage_in_bytes", "419430400\n"),
    ]);
    assert_eq!((free.total, free.available), (16384 * MIB, 12288 * MIB));
}

#[test]
fn resource_limits_leave_what_is_not_mapped_yet() {
    let limits = |address_space: &str, data: &str| {
        let limits = format!(
            "Limit                     Soft Limit           Hard Limit           Units\n\
             Max data size             {data}            unlimited            bytes\n\
             Max address space         {address_space}            unlimited            bytes\n"
        );
        let status = "VmPeak:\t  999999 kB\nVmSize:\t  102400 kB\nVmData:\t   51200 kB\n";
        memory(&[INFO, ("/proc/self/limits", &limits), ("/proc/self/status", status)])
    };
    let mapped = limits("314572800", "unlimited");
    assert_eq!((mapped.total, mapped.available), (300 * MIB, 200 * MIB));
    assert_eq!(mapped.address_space, Some(200 * MIB));
    assert_eq!(mapped.beside_threads(10), 200 * MIB - 10 * STACK);
    assert_eq!((mapped.threads(64), mapped.threads(2)), (8, 2));
    let data = limits("unlimited", "209715200");
    assert_eq!((data.available, data.address_space), (150 * MIB, None));
    let nothing = limits("1024", "unlimited");
    assert_eq!((nothing.available, nothing.threads(4)), (0, 1));
}

#[cfg(unix)]
#[test]
fn what_is_kept_can_be_had() {
    let memory = SystemMemory { total: 100, available: 30, address_space: Some(40) };
    let beside = memory.beside_kept(20);
    assert_eq!((beside.available, beside.address_space), (50, Some(60)));
    assert_eq!(memory.beside_kept(90).available, 100);
}
