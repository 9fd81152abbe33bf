# Completion of cachefs for bash.

_cachefs_mountpoints() {
	awk '$3 == "fuse.cachefs" { print $2 }' /proc/self/mounts
}

_cachefs() {
	local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command=${COMP_WORDS[1]}
	local common='--control --help --version' options
	local mount_options='ro endpoint= region= addressing= aws_profile= credentials= anonymous ca= ttl= immutable
		strict negative_ttl= subdir= uid= gid= umask= allow_other protect readahead= connections= bandwidth= timeout=
		store= size='

	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		mapfile -t COMPREPLY < <(compgen -W \
			'mount umount status top pin unpin evict verify serve hold upgrade doctor --help --version' -- "$cur")
		return
	fi
	case $prev in
	-o | --options)
		mapfile -t COMPREPLY < <(compgen -P "${cur%"${cur##*,}"}" -W "$mount_options" -- "${cur##*,}")
		compopt -o nospace
		return
		;;
	--control | --config)
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
		return
		;;
	--store)
		mapfile -t COMPREPLY < <(compgen -d -- "$cur")
		return
		;;
	--size | --ttl | --metrics | --interval | --count) return ;;
	esac
	case $command in
	mount) options='-o --options' ;;
	umount) options='--force --no-drain' ;;
	status | unpin | evict) options='--json' ;;
	top) options='--interval --count' ;;
	pin) options='--ttl --json' ;;
	verify) options='--all --repair --json' ;;
	serve) options='--store --size --metrics --config --exit-when-idle' ;;
	hold) options='--store --size --metrics --config --exit-when-idle --abort-after --watchdog' ;;
	upgrade) options='--binary' ;;
	doctor) options='-o --options --store --json' ;;
	*) return ;;
	esac
	if [[ $cur == -* ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$options $common" -- "$cur")
	elif [[ $command == umount || $command == top ]]; then
		mapfile -t COMPREPLY < <(compgen -W "$(_cachefs_mountpoints)" -- "$cur")
	elif [[ $command != serve && $command != hold && $command != upgrade ]]; then
		compopt -o filenames
		mapfile -t COMPREPLY < <(compgen -f -- "$cur")
	fi
}

complete -F _cachefs cachefs
