"""Mutants of the product: ways in which it would be wrong, and the test that notices each.

`python -m tests.mutants` applies them one by one. A row is found by its text, which stands once in the
product, so it stays when a file moves. Its test is the cheapest that fails; others may fail too.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """One wrong product."""

    name: str
    """What it does wrong."""
    old: str
    new: str
    test: str
    """The node id of the test that kills it."""
    outside: str = ""
    """The mark of a test that `make test` leaves out."""


MUTANTS = (
    Mutant(
        "elements of another version than the controller's are let begin",
        'looks.saw(*versions, what="the elements would be of another penstock"',
        'looks.saw(what="the elements would be of another penstock"',
        "tests/run/test_node_view.py::test_a_node_with_another_version_under_the_same_path_stops",
    ),
    Mutant(
        "a name that is swept may come back after a power cut",
        "        os.fsync(folder)\n    finally:\n        os.fchmod(folder, mode)\n",
        "    finally:\n        os.fchmod(folder, mode)\n",
        "tests/target/test_durable.py::test_names_that_are_swept_stay_away_after_a_power_cut",
    ),
    Mutant(
        "a small file is named before its bytes are synced",
        "            os.fsync(self.stream.fileno())\n"
        "            self.stream.close()\n"
        "            rename(self._temporary, self._path)\n",
        "            rename(self._temporary, self._path)\n"
        "            os.fsync(self.stream.fileno())\n"
        "            self.stream.close()\n",
        "tests/target/test_durable.py::test_bytes_are_synced_before_their_name_and_its_folder_after",
    ),
    Mutant(
        "a small file is never synced",
        "            os.fsync(self.stream.fileno())\n",
        "",
        "tests/target/test_durable.py::test_bytes_are_synced_before_their_name_and_its_folder_after",
    ),
    Mutant(
        "the folder of a rename is not synced",
        "    os.rename(old, new)\n    fsync_dir(new.parent)\n",
        "    os.rename(old, new)\n",
        "tests/target/test_durable.py::test_bytes_are_synced_before_their_name_and_its_folder_after",
    ),
    Mutant(
        "a line of the history is not synced",
        "        os.fsync(fd)\n    finally:\n        os.close(fd)\n    if new:\n",
        "    finally:\n        os.close(fd)\n    if new:\n",
        "tests/target/test_durable.py::test_bytes_are_synced_before_their_name_and_its_folder_after",
    ),
    Mutant(
        "a table is not synced",
        "            os.fsync(self._file.fileno())\n",
        "",
        "tests/target/test_durable.py::test_bytes_are_synced_before_their_name_and_its_folder_after",
    ),
    Mutant(
        "a staged file is not synced",
        "                os.fsync(fd)\n                self._staging.touched.add(pending.parent)\n",
        "                self._staging.touched.add(pending.parent)\n",
        "tests/target/test_staging.py::test_failing_system_calls",
    ),
    Mutant(
        "the folder of a staged file is not synced",
        "                self._staging.touched.add(pending.parent)\n            pending.fd = -1\n",
        "            pending.fd = -1\n",
        "tests/target/test_staging.py::test_a_folder_that_another_made_is_made_durable_before_files_in_it_are_named",
    ),
    Mutant(
        "a row is recorded before its bytes are durable",
        "            self._barrier.wait()\n        self._journal.append(lines)\n",
        "            self._journal.append(lines)\n            self._barrier.wait()\n",
        "tests/engine/test_journal.py::test_a_row_is_recorded_once_its_bytes_are_durable_and_counts_once_the_record_is",
    ),
    Mutant(
        "a journal is not synced",
        "        os.fdatasync(self._fd)\n",
        "        pass\n",
        "tests/engine/test_journal.py::test_a_row_is_recorded_once_its_bytes_are_durable_and_counts_once_the_record_is",
    ),
    Mutant(
        "a torn line spoils the next one",
        'torn = size > 0 and os.pread(fd, 1, size - 1) != b"\\n"',
        "torn = False",
        "tests/run/test_arrays.py::test_the_book_survives_a_torn_line",
    ),
    Mutant(
        "a staging without a seal is revealed",
        "        _sealed(staging)\n",
        "",
        "tests/target/test_publishing.py::test_what_is_not_sealed_is_never_shown",
    ),
    Mutant(
        "a run that was overtaken reveals its release",
        "        assert_held()\n        rename(staging, final)\n",
        "        rename(staging, final)\n",
        "tests/run/test_claims.py::test_overtaken_right_before_a_rename_readers_see_nothing_of_it",
    ),
    Mutant(
        "a run that was overtaken moves current",
        "                assert_held()\n                rename(temporary, layout.current)\n",
        "                rename(temporary, layout.current)\n",
        "tests/target/test_publishing.py::test_a_run_that_was_overtaken_leaves_no_link_behind",
    ),
    Mutant(
        "current is gone for a moment",
        "                rename(temporary, layout.current)\n",
        "                layout.current.unlink(missing_ok=True)\n"
        "                rename(temporary, layout.current)\n",
        "tests/target/test_publishing.py::test_killed_at_every_line_and_done_again",
    ),
    Mutant(
        "the mode of a file of another release is changed",
        "            if actual.kind == stat.S_IFREG and actual.links != 1:\n",
        "            if False:\n",
        "tests/target/test_permissions.py::test_what_another_release_shares_is_never_changed",
    ),
    Mutant(
        "a file with another mode is published",
        "            self._final is None or self._final.held(paths, looked.mode, looked.gid)\n",
        "            True\n",
        "tests/run/test_file_permissions.py::test_a_file_with_another_mode_is_set_and_its_shard_verified_again",
    ),
    Mutant(
        "a file in parts keeps its owner's write bit",
        "            if self._staging.put_right(fd, path) and self._staging.fsync:\n",
        "            if self._staging.fsync:\n",
        "tests/target/test_staging.py::test_a_file_in_parts_gets_its_mode_right_after_its_name",
    ),
    Mutant(
        "the configured group is not given",
        "if gid is not None and status.st_gid != gid:",
        "if False:",
        "tests/target/test_staging.py::test_the_group_comes_from_the_folder_or_is_given",
    ),
    Mutant(
        "a lock that another made counts as this process's",
        'return "made" if made is not None and _nonce(made.content) == nonce else "taken"',
        'return "made"',
        "tests/target/test_locking.py::test_held_and_given_back",
    ),
    Mutant(
        "a lock whose heart beats is taken over",
        "        if moved():\n            return False\n",
        "        moved()\n",
        "tests/target/test_locking.py::test_a_heart_that_beats_elsewhere",
    ),
    Mutant(
        "a process number that is used again counts as the holder",
        "        return None if started is None else started == holder.start\n"
        "    return started == holder.start\n",
        "        return None if started is None else started == holder.start\n    return True\n",
        "tests/target/test_locking.py::test_nobody_waits_where_the_case_is_clear",
    ),
    Mutant(
        "a lock that was lost counts as held",
        "                if self._fd >= 0 and self._ours():\n",
        "                if self._fd >= 0:\n",
        "tests/target/test_locking.py::test_a_lost_lock_is_noticed_and_left_alone",
    ),
    Mutant(
        "a key leads out of the release",
        'if segment in {".", ".."}:',
        'if segment == ".":',
        "tests/core/test_keys.py::test_what_cannot_be_a_path_is_refused_with_its_reason",
    ),
    Mutant(
        "a path that is listed twice passes",
        '            if first == second:\n                yield name, "is listed twice"',
        '            if False:\n                yield name, "is listed twice"',
        "tests/core/test_keys.py::test_a_doubled_path_is_found",
    ),
    Mutant(
        "all rows are in one shard",
        "self._limit = 1 << 200 if last else -(-(self._range + 1) * self._total // self._shards)",
        "self._limit = 1 << 200",
        "tests/core/test_balance.py::test_no_row_is_lost_and_the_dearest_shard_is_within_one_row_of_the_mean",
    ),
    Mutant(
        "a shard is smaller than is worth it",
        "if (worth := max(1, int(load.cost / least))) < wanted:",
        "if (worth := max(1, int(load.cost / least))) < 0:",
        "tests/core/test_balance.py::test_the_number_of_shards",
    ),
    Mutant(
        "a node of the seal's tree may be a leaf",
        'return sha256(b"\\x01" + left + right).digest()',
        'return sha256(b"\\x00" + left + right).digest()',
        "tests/core/test_seal.py::test_the_streamed_root_is_that_of_the_rfc",
    ),
    Mutant(
        "a reading in the future counts",
        "return 0 < read_at <= now.earliest + AHEAD",
        "return 0 < read_at",
        "tests/core/test_linked_reading.py::test_the_share_that_is_due",
    ),
    Mutant(
        "a name steers the terminal",
        '_UNSAFE = frozenset({"Cc", "Cf", "Cs"',
        '_UNSAFE = frozenset({"Cc", "Cs"',
        "tests/core/test_human.py::test_what_steers_a_terminal_is_escaped",
    ),
    Mutant(
        "a body that is longer than listed is stored",
        "        if read > length or body.readinto(view[read:]):",
        "        if False:",
        "tests/engine/test_faults.py::test_a_long_body_is_never_stored",
    ),
    Mutant(
        "a checksum of the source is not compared",
        '    if read != checksum.value:\n        raise IntegrityError(\n            f"the bytes read',
        '    if False:\n        raise IntegrityError(\n            f"the bytes read',
        "tests/engine/test_checks.py::test_a_full_checksum_that_does_not_hold_is_an_error",
    ),
    Mutant(
        "a small object's checksum is not compared",
        "    if computed.hexdigest() != checksum.value:\n        return None",
        "    if False:\n        return None",
        "tests/engine/test_checks.py::test_a_small_object_is_proven_at_once_where_its_cheapest_checksum_holds",
    ),
    Mutant(
        "attempts that disagree prove a row",
        "if earlier is not None and _became(earlier) != _became(record):",
        "if False:",
        "tests/engine/test_journal.py::test_two_attempts_that_disagree_prove_nothing",
    ),
    Mutant(
        "the journal of another shard is replayed",
        '    if value["shard"] != shard_digest:',
        "    if False:",
        "tests/engine/test_journal.py::test_another_shards_journal_is_refused",
    ),
    Mutant(
        "a record that was taken back counts",
        "if (row, attempt) in bad or (joined",
        "if (joined",
        "tests/engine/test_journal.py::test_what_was_taken_back_counts_again_when_it_is_copied_again",
    ),
    Mutant(
        "verify compares no digest",
        "            if read != expected.value:",
        "            if False:",
        "tests/engine/test_rereading.py::test_what_is_not_as_written_is_a_failure_and_is_made_anew",
    ),
    Mutant(
        "verify compares no digest of small files",
        "if reading.stat.st_size != size or entry.digest != of_hex(xxhash.xxh3_128_hexdigest(data)):",
        "if reading.stat.st_size != size:",
        "tests/audit/test_auditor.py::test_a_bad_row_that_was_read_with_others_is_judged_by_a_read_of_its_own",
    ),
    Mutant(
        "an audit compares no digest",
        "        if read != entry.digest:",
        "        if False:",
        "tests/audit/test_auditor.py::test_other_bytes_are_told_with_both_digests",
    ),
    Mutant(
        "an audit compares no size",
        "        if reading.stat.st_size != entry.size:\n            raise _differs",
        "        if False:\n            raise _differs",
        "tests/audit/test_auditor.py::test_another_size_is_told",
    ),
    Mutant(
        "a source that is away is given up at once",
        "if not error.retry or rows != self._done",
        "if rows != self._done",
        "tests/engine/test_faults.py::test_a_source_that_is_away_ends_the_shard_and_not_each_row",
    ),
    Mutant(
        "a large body passes the limit",
        "            if limiter:\n                limiter.take(want)\n",
        "",
        "tests/engine/test_pump.py::test_each_byte_is_taken_of_the_limit_before_it_is_read",
    ),
    Mutant(
        "one try too many",
        "last = tried >= attempts or not may(error, tried)",
        "last = tried > attempts or not may(error, tried)",
        "tests/sources/test_objects.py::test_what_may_pass_is_tried_again_after_growing_pauses",
    ),
    Mutant(
        "another version of an object is taken",
        "    if not entry.token or version == entry.token:\n        return None",
        "    if True:\n        return None",
        "tests/sources/test_objects.py::test_answers_are_judged",
    ),
    Mutant(
        "another range of an object is taken",
        "        if stated != expected:\n            why",
        "        if False:\n            why",
        "tests/sources/test_objects.py::test_answers_are_judged",
    ),
    Mutant(
        "a key that a store lists twice, and not alike, passes",
        "                if item != before:",
        "                if key < last:",
        "tests/listing/test_inventory.py::test_a_key_that_is_listed_twice_is_refused",
    ),
    Mutant(
        "a listing that is cut off passes",
        "            if os.fsencode(key) > os.fsencode(last):",
        "            if False:",
        "tests/sources/test_listing.py::test_a_listing_that_is_cut_off_unsaid_is_refused",
    ),
    Mutant(
        "a table of a newer format is read",
        '    refuse_newer(f"this {name}", int(number), int(newest), path)\n',
        "",
        "tests/tables/test_versions.py::test_a_table_of_a_newer_format_is_refused_by_name",
    ),
    Mutant(
        "a table of endless rows is read",
        "            if not 0 <= rows <= size * ROWS_A_BYTE:",
        "            if False:",
        "tests/tables/test_hostile_tables.py::test_a_manifest_that_is_made_to_harm_is_damage",
    ),
    Mutant(
        "an object without a version counts as unchanged",
        'pc.greater(pc.binary_length(listed["token"]), 0)',
        'pc.greater_equal(pc.binary_length(listed["token"]), 0)',
        "tests/planning/test_unchanged_rows.py::test_any_difference_means_copying",
    ),
    Mutant(
        "an object of another size counts as unchanged",
        'ALIKE = ("token", "size", "key", "version")',
        'ALIKE = ("token", "key", "version")',
        "tests/planning/test_unchanged_rows.py::test_any_difference_means_copying",
    ),
    Mutant(
        "what a dead run would write is counted",
        "<= (UNSEEN if notice.step == SUBMITTED else capabilities.BOUND)",
        "<= UNSEEN",
        "tests/run/test_room_beside_others.py::test_s17_a_run_that_was_killed_is_counted_until_it_gave_no_sign_of_life",
    ),
    Mutant(
        "a notice speaks for another account",
        "notice = notice._replace(writes=notice.writes._replace(uid=status.st_uid))",
        "pass",
        "tests/run/test_room_beside_others.py::test_s17_what_accounts_outside_target_owners_state_is_said_and_refuses_nothing",
    ),
    Mutant(
        "what any account states refuses a plan",
        "and trusted(notice.uid)",
        "",
        "tests/run/test_room_beside_others.py::test_s17_what_accounts_outside_target_owners_state_is_said_and_refuses_nothing",
    ),
    Mutant(
        "a copy goes on below keep_free",
        "if spare < min(1 + own * ends, left) + others * ends:",
        "if False:",
        "tests/target/test_room_watch.py::test_s17_what_does_not_fit_ends_before_the_rest_is_taken",
    ),
    Mutant(
        "records that verify did not write are sealed",
        "if verified is None or receipts.file_digest(path) != verified.records:",
        "if verified is None:",
        "tests/run/test_publishing.py::test_records_that_are_not_those_of_verify_are_made_anew",
    ),
    Mutant(
        "what was touched after verify is sealed",
        "    if (item.mtime_ns, item.ctime_ns) != (record.mtime_ns, record.ctime_ns):",
        "    if False:",
        "tests/run/test_closing_tree.py::test_whatever_was_done_to_a_tree_is_told",
    ),
    Mutant(
        "what was not listed is sealed",
        "        for beside in self._tree.rest():\n"
        "            self._extra(beside)\n"
        "        for folder in self._folders",
        "        for folder in self._folders",
        "tests/run/test_closing_tree.py::test_whatever_was_done_to_a_tree_is_told",
    ),
    Mutant(
        "gc removes the current release",
        '    elif candidate.release == current:\n        held.append("current")\n',
        "",
        "tests/retention/test_decision.py::test_each_rule_of_the_table",
    ),
    Mutant(
        "gc does not wait for the grace",
        "if candidate.left is not None and now - candidate.left < grace:",
        "if False:",
        "tests/retention/test_decision.py::test_each_rule_of_the_table",
    ),
    Mutant(
        "a pin that came after the mark is passed over",
        "            if mark and held:\n",
        "            if False:\n",
        "tests/retention/test_gc.py::test_a_pin_that_comes_between_the_mark_and_the_rename_keeps_the_release",
    ),
    Mutant(
        "pins that cannot be read count as none",
        "        return _pins(notices.postings(layout.pins).posted)\n    except OSError as error:",
        "        return read(layout)\n    except OSError as error:",
        "tests/retention/test_pins.py::test_nothing_is_removed_where_the_owner_cannot_read_the_pins",
    ),
    Mutant(
        "a pin stands for ever",
        "    if now - pin.made > longest:",
        "    if False:",
        "tests/retention/test_pins.py::test_how_long_a_pin_stands",
    ),
    Mutant(
        "a release that is being removed is pinned",
        "        if not is_going(layout, published.release):\n            _replace",
        "        if True:\n            _replace",
        "tests/retention/test_pins.py::test_a_release_that_is_being_removed_is_not_pinned_and_another_one_is",
    ),
    Mutant(
        "HOLD of one release holds none",
        'return self.release in ("", release)',
        'return self.release == ""',
        "tests/dataset/test_hold.py::test_whom_a_line_holds",
    ),
    Mutant(
        "a line of HOLD that names nothing is passed over",
        '            yield Hold(number, "", "", why, file.by)',
        "            continue",
        "tests/dataset/test_hold.py::test_a_line_that_names_nothing_holds_everything_and_says_which_it_is",
    ),
    Mutant(
        "root stages by mistake",
        "if os.geteuid() == 0 and right in OF_OWNER and not as_root():",
        "if False:",
        "tests/dataset/test_rights.py::test_root_is_refused_what_is_the_owners",
    ),
    Mutant(
        "a signature that does not verify holds",
        "            if answer.ok:\n                return name",
        "            if answer.there:\n                return name",
        "tests/signing/test_ssh_keygen.py::test_what_does_not_hold",
    ),
    Mutant(
        "a key that others may read signs",
        "    if stat.S_IMODE(status.st_mode) & others:",
        "    if False:",
        "tests/signing/test_ssh_keygen.py::test_files_that_others_may_change_are_refused",
    ),
    Mutant(
        "the receipt of another run holds",
        "            and receipt.run == run.plan.run\n"
        "            and receipt.shard == run.shards[index].digest\n",
        "",
        "tests/run/test_element.py::test_a_receipt_of_another_run_plan_or_copy_does_not_hold",
    ),
    Mutant(
        "the receipt of a verify of another copy holds",
        "        receipt.copied_by == copied_by(run.folder, index)\n        and run.folder.records",
        "        run.folder.records",
        "tests/run/test_element.py::test_a_receipt_of_another_run_plan_or_copy_does_not_hold",
    ),
    Mutant(
        "findings of an audit close no gate",
        "    for look in (_proven, _whole, _without_findings,",
        "    for look in (_proven, _whole,",
        "tests/audit/test_judgement.py::test_findings_close_path_and_show_in_every_command",
    ),
    Mutant(
        "a run undoes a person's rollback",
        "return _about(published[-1] if published else moved[-1], run)",
        "return False",
        "tests/run/test_pointer.py::test_a_rollback_that_the_history_tells_of_stays_too",
    ),
    Mutant(
        "what was not listed is published",
        "        if deviations.extra:\n            raise",
        "        if False:\n            raise",
        "tests/run/test_publishing.py::test_what_was_not_listed_is_refused_and_named",
    ),
    Mutant(
        "an element goes again onto a full target",
        "fate.claim.call == watch.call and exit_status(fate) == NoSpaceError.exit_code",
        "False",
        "tests/run/test_arrays.py::test_on_a_full_target_no_further_array_is_submitted",
    ),
    Mutant(
        "workers that take no shard are submitted for ever",
        "or watch.fruitless >= max(UNPROVEN, slots) * (retries + 1)\n",
        "\n",
        "tests/run/test_worker_ends.py::TestWorkersThatTakeNothing"
        "::test_workers_that_end_before_they_took_a_shard_are_bounded_and_named",
    ),
    Mutant(
        "another worker takes the place of one that a person cancelled",
        "watch.ended_by_person += number not in watch.dismissed",
        "watch.ended_by_person += 0",
        "tests/run/test_arrays_control.py::TestCancel"
        "::test_no_other_takes_the_place_of_a_worker_that_a_person_cancelled",
    ),
    Mutant(
        "damage that was named before is copied again",
        "if outcome.failures and outcome.generation > named.get(index, 0) and not ok(index)",
        "if outcome.failures and not ok(index)",
        "tests/run/test_read_back_again.py"
        "::test_damage_that_was_named_before_is_not_taken_for_the_cause_of_an_error",
    ),
    Mutant(
        "what an earlier claim of a shard came to counts on",
        "if (outcome := documents.find_outcome(run, step, index, generation)) is not None:"
        "\n            yield",
        "if (outcome := documents.find_outcome(run, step, index, 1)) is not None:\n            yield",
        "tests/run/test_last_ends.py::test_an_outcome_counts_while_its_claim_is_the_highest",
    ),
    Mutant(
        "a worker takes the shard of another one at once",
        "return (last.array, last.number) == (own.array, own.number) and last.restarts < own.restarts",
        "return last.restarts < own.restarts",
        "tests/run/test_started_again.py::test_no_other_process_does[1-1-array]",
    ),
    Mutant(
        "a worker's shard is taken while its process is at work",
        "(last.array, last.number) == (own.array, own.number) and last.restarts < own.restarts",
        "(last.array, last.number) == (own.array, own.number)",
        "tests/run/test_started_again.py::test_no_other_process_does[0-0-array]",
    ),
    Mutant(
        "an array of an older version is watched as if its elements knew claims",
        "    if not live.submission.workers:\n        raise LockedError(",
        "    if False:\n        raise LockedError(",
        "tests/run/test_arrays.py::test_an_array_of_an_earlier_version_is_refused_by_name_until_it_has_ended",
    ),
    Mutant(
        "what accounting says of a worker counts its earlier starts twice",
        "account.seconds - before if account",
        "account.seconds if account",
        "tests/run/test_element_accounts.py::test_what_slurmdbd_says_goes_beside_it_and_counts_once",
    ),
    Mutant(
        "more elements run than a person said",
        "    while sum(limits) > most and max(limits, default=1) > 1:",
        "    while False:",
        "tests/run/test_throttling.py::test_the_shares_of_several_arrays",
    ),
    Mutant(
        "a node that failed twice is given more",
        "MOST = 2  # ends of elements",
        "MOST = 3  # ends of elements",
        "tests/run/test_worker_ends.py::TestNodes::test_a_node_that_fails_twice_is_left_out_of_what_follows",
    ),
    Mutant(
        "an element whose processes may be there has ended",
        '"COMPLETING": State.RUNNING',
        '"COMPLETING": State.DONE',
        "tests/slurm/test_submission.py::TestAnswers::test_squeue",
    ),
    Mutant(
        "a state that is not known counts as lost",
        "state = STATES.get(word, State.RUNNING)",
        "state = STATES.get(word, State.LOST)",
        "tests/cluster_port/test_refusals.py::test_a_state_that_only_a_later_slurm_knows_is_no_end",
    ),
    Mutant(
        "what accounting alone calls alive is alive",
        "if element.element in missing and element.status.state.ended:",
        "if element.element in missing:",
        "tests/cluster_port/test_slurm_rules.py::test_what_accounting_calls_alive_is_lost",
    ),
    Mutant(
        "another job of the same number is the array",
        'return [element for element in elements if not name or element.name in ("", name)]',
        "return list(elements)",
        "tests/cluster_port/test_slurm_rules.py::test_an_id_that_another_job_has_now_is_not_the_arrays",
    ),
    Mutant(
        "an end that was seen is forgotten",
        "statuses[index] = over.get(index) or gone",
        "statuses[index] = gone",
        "tests/cluster_port/test_slurm_rules.py::test_what_was_seen_to_end_is_not_looked_up_again_when_the_controller_forgets_it",
    ),
    Mutant(
        "a controller that is away is a failure",
        "    return TransientError if TRANSIENT.search(words) else FailedError",
        "    return FailedError",
        "tests/cluster_port/test_refusals.py::test_what_words_stand_for",
    ),
    Mutant(
        "a full target ends with 1",
        "    exit_code = 6\n",
        "    exit_code = 1\n",
        "tests/cli/test_main.py::test_a_full_disk_anywhere_is_exit_6",
    ),
    Mutant(
        "a signal ends with the error's status",
        "code = 128 + session.stop.signal_number if stopped else error.exit_code",
        "code = error.exit_code",
        "tests/cli/test_main.py::test_after_a_signal_the_status_is_the_signals",
    ),
    Mutant(
        "a word that is no command ends with 1",
        "        output.say(refusal)\n        return _refused(words, 2)",
        "        output.say(refusal)\n        return _refused(words, 1)",
        "tests/cli/test_did_you_mean.py::test_a_word_that_is_no_command_does_nothing",
    ),
    Mutant(
        "a key of the configuration may be given twice",
        "            if key in mapping:\n",
        "            if False:\n",
        "tests/config/test_strict_yaml.py::test_refusals_say_where",
    ),
    Mutant(
        "what Snakemake's reading changed is handed on",
        "        if value is not _NOTHING and (same or written.read is _ANYTHING):",
        "        if False:",
        "tests/config/test_parsed_mapping.py::test_what_came_by_an_anchor_is_looked_up_too",
    ),
    Mutant(
        "a value that two readers see in two ways is taken",
        "    if _AMBIGUOUS.fullmatch(text):",
        "    if False:",
        "tests/config/test_strict_yaml.py::test_what_two_readers_see_in_two_ways",
    ),
    Mutant(
        "a password in a URL is taken",
        'if at_sign and (":" in user or not of_url(url).user):',
        "if False:",
        "tests/config/test_loading.py::test_secrets_are_refused_and_never_shown",
    ),
    Mutant(
        "an old segment of a listing is read",
        "if 0 <= age <= self._within and count_of",
        "if count_of",
        "tests/listing/test_resumption.py::test_what_is_older_than_the_limit_is_listed_anew",
    ),
    Mutant(
        "what lies between two segments of a listing is passed over",
        "            if position < segment.begin:\n"
        "                yield from self._written(position, segment.begin)\n",
        "",
        "tests/listing/test_resumption.py::test_what_lies_between_two_segments_is_listed",
    ),
    Mutant(
        "rows of another segment are read as a segment's own",
        "            if not position < order(listed[0]) <= order(listed[-1]) <= segment.end:\n"
        "                raise damaged\n",
        "",
        "tests/listing/test_resumption.py::test_a_segment_whose_rows_are_not_its_own_is_refused",
    ),
    Mutant(
        "an audit with findings counts as a reading",
        'if result.get("status") == "PASSED" and enough:',
        "if enough:",
        "tests/run/test_carried.py::test_an_audit_with_findings_counts_as_no_reading",
    ),
    Mutant(
        "what a repair fetched stays for ever where its removal was killed",
        "            repair_array.clear(context, layout, release)\n",
        "            pass\n",
        "tests/audit/test_mending_killed.py::test_a_mender_that_is_killed_before_a_change_is_ended_by_the_same_command",
    ),
    Mutant(
        "a file without a version counts as unchanged at its source",
        '            pc.and_(pc.equal(before["token"], after["token"]), stated),',
        '            pc.equal(before["token"], after["token"]),',
        "tests/look/test_difference.py::test_how_a_path_compares_with_its_source",
    ),
    Mutant(
        "a living holder is left out of the shares",
        "return silent < (abandoned(self._late) if listing.beats.get(holder.name) else GONE)",
        "return False",
        "tests/shares/test_rule.py::test_z1_a_run_whose_controller_died_keeps_its_part_while_its_processes_beat",
    ),
    Mutant(
        "bytes are read before the cap is known",
        "        if not self._file.known:\n            return Allowance(0.0",
        "        if False:\n            return Allowance(0.0",
        "tests/bandwidth/test_share.py::test_s25_nothing_is_read_before_the_cap_is_known",
    ),
    Mutant(
        "two releases of one day have the same version",
        ".{int(hour.replace(':', '') or 0)}.0+{build}",
        ".0.0+{build}",
        "tests/extras/test_croissant.py::test_the_version_is_semantic_and_rises_with_time",
    ),
    Mutant(
        "a manifest that was not sealed passes",
        "        if not whole:\n            why.append",
        "        if False:\n            why.append",
        "tests/audit/test_findings.py::test_a_damaged_manifest_is_noticed_and_nothing_is_repaired_by_it",
    ),
    Mutant(
        "a tree's file of another size is adopted",
        '        elif item.size != entry.size:\n            yield _of(entry, "size"',
        '        elif False:\n            yield _of(entry, "size"',
        "tests/adoption/test_comparing.py::test_each_difference_is_named_for_what_it_is",
    ),
    Mutant(
        "a document that is a FIFO keeps its reader",
        "        if not stat.S_ISREG(os.fstat(fd).st_mode):\n            raise NotPlainError",
        "        if False:\n            raise NotPlainError",
        "tests/fs/test_plain_files.py::test_what_is_no_plain_file_of_a_bounded_size_is_refused_at_once",
    ),
    Mutant(
        "a link in a release is followed",
        "HOLD_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC",
        "HOLD_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC",
        "tests/target/test_beneath.py::test_links_anywhere_are_refused",
    ),
    Mutant(
        "the limit of a cgroup above is passed over",
        "for depth in range(len(names), -1, -1)]",
        "for depth in [len(names)]]",
        "tests/target/test_cgroups.py::test_the_least_limit_on_the_path_holds",
    ),
    Mutant(
        "a size without blocks goes before the vendor's word",
        "            if state is None and hints and self._stubs and without:",
        "            if hints and self._stubs and without:",
        "tests/vendors/test_data_states.py::test_s16_the_command_goes_before_the_hint",
    ),
    Mutant(
        "what a vendor's command started is left",
        "os.killpg(child.pid, signal.SIGKILL)",
        "child.kill()",
        "tests/vendors/test_command.py::test_what_does_not_end_is_killed_with_all_that_it_started",
    ),
    Mutant(
        "a remaining time is shown while nothing moves",
        'if (self.states and "running" not in self.states) or now - self._moved > STALE_SECONDS:',
        'if self.states and "running" not in self.states:',
        "tests/look/test_lines.py::test_no_estimate_is_left_when_nothing_runs_or_moves",
    ),
    Mutant(
        "the workflow starts below a brace",
        '    if set("{}") & set(str(folder)):',
        "    if False:",
        "tests/workflow/test_own_workflow.py::test_an_installation_below_a_brace_is_refused",
    ),
    Mutant(
        "files are carried over where a cold reading is asked for",
        'if self.minimum_grade in ("auto", "written") else None',
        'if self.minimum_grade in ("auto", "written", "cold") else None',
        "tests/config/test_loading.py::test_linked_files_are_carried_over_where_no_grade_of_reading_is_asked_for",
    ),
    Mutant(
        "a composite by the sizes that were stated is taken for one by assumed ones",
        "[composite._replace(part_bytes=0) if sizes_known else composite]",
        "[composite]",
        "tests/engine/test_part_sizes.py::test_wrong_bytes_contradict_the_composite_of_any_parts",
    ),
    Mutant(
        "a frame is read before it is whole",
        "                if end > len(view):\n",
        "                if end < start:\n",
        "tests/engine/test_decisions.py::test_a_frame_that_comes_in_two_pieces_is_whole",
    ),
    Mutant(
        "the beginning of a frame is thrown away",
        "        del self._buffer[:start]\n",
        "        self._buffer.clear()\n",
        "tests/engine/test_decisions.py::test_a_frame_that_comes_in_two_pieces_is_whole",
    ),
    Mutant(
        "a rare row stands beside the one that took its place",
        "        if self._kinds[row] == _ODD:\n            del self._odd[row]\n",
        "",
        "tests/engine/test_copied.py::test_a_rare_row_is_none_of_them_any_more_once_it_left",
    ),
    Mutant(
        "a rare row that was dropped is one of the rare rows",
        "            self._odd.pop(row, None)\n",
        "",
        "tests/engine/test_copied.py::test_a_rare_row_is_none_of_them_any_more_once_it_left",
    ),
    Mutant(
        "a step of a run that was overtaken begins",
        "        if run:\n            dataset_lock.check_claim(layout, run)\n        submitted_arrays",
        "        submitted_arrays",
        "tests/run/test_claims.py::test_a_step_of_a_run_that_was_overtaken_does_not_begin_its_work",
    ),
    Mutant(
        "a step that was overtaken amid its work is done",
        '            if hold.run and step != "publish":\n',
        '            if hold.run and step == "list":\n',
        "tests/run/test_claims.py::test_a_step_that_is_overtaken_amid_its_work_ends_with_7",
    ),
    Mutant(
        "a step that was overtaken ends with its own error",
        "            raise _overtaken(hold) or error from None\n",
        "            raise\n",
        "tests/run/test_claims.py::test_a_step_that_is_overtaken_amid_its_work_ends_with_7",
    ),
    Mutant(
        "a receipt is written by a worker whose shard another one took",
        "            self.require()\n            made = documents.create(",
        "            made = documents.create(",
        "tests/run/test_shard_claims.py::test_a_worker_that_wakes_overtaken_ends_its_shard",
    ),
    Mutant(
        "a worker that was halted takes the others for dead",
        "self.still + min(now - self.looked, most)",
        "self.still + now - self.looked",
        "tests/run/test_shard_claims.py::test_of_a_long_gap_between_two_looks_a_part_counts",
    ),
    Mutant(
        "a node on which a shard was done counts as bad",
        "        if several and not self._done and kernel_facts.current_job().job:",
        "        if several and kernel_facts.current_job().job:",
        "tests/run/test_worker.py::test_a_node_where_a_shard_was_done_is_not_bad",
    ),
    Mutant(
        "on a full target a worker takes one shard after another",
        "        if code == NoSpaceError.exit_code:\n            self._over = True\n            return\n",
        "",
        "tests/run/test_worker.py::test_on_a_full_target_it_takes_no_further_shard",
    ),
    Mutant(
        "a row is reported whose name is not durable",
        "            stream.settle()\n            batch.results.extend(results)\n",
        "            batch.results.extend(results)\n            stream.settle()\n",
        "tests/engine/test_worker.py::test_rows_whose_names_could_not_be_made_durable_are_not_reported",
    ),
    Mutant(
        "linked rows are read back while further links change their ctime",
        "if i not in away and not self._run.shards[i].reused)",
        "if i not in away)",
        "tests/run/test_reading_beside.py::test_linked_rows_are_read_when_all_is_copied",
    ),
    Mutant(
        "a giant is read back while a part of it lacks",
        "                if place not in self._known:\n                    return False\n",
        "                if place not in self._known:\n                    break\n",
        "tests/run/test_reading_beside.py::test_a_giant_is_read_back_when_all_its_parts_are_copied",
    ),
    Mutant(
        "reading back goes on beside a copy that it slows down by half",
        "        if rate < MUCH * self._alone or self._slower > 1:\n",
        "        if self._slower > 2:\n",
        "tests/run/test_reading_pace.py::test_it_rests_where_the_copy_gets_slower",
    ),
    Mutant(
        "parts that were dropped again count as progress",
        "    return not begun <= dropped\n",
        "    return bool(begun)\n",
        "tests/engine/test_multipart_resumed.py"
        "::test_parts_that_were_given_up_are_not_met_again_and_are_no_progress",
    ),
    Mutant(
        "parts of another version become the object",
        "            if line.token == entry.token and line.part_bytes == size:\n",
        "            if line.part_bytes == size:\n",
        "tests/engine/test_multipart_resumed.py::test_parts_that_no_longer_stand_are_fetched_anew",
    ),
    Mutant(
        "a mark counts before the bytes up to it are durable",
        "            self._copier.writer.sync(self._pending)\n            self.end(digest.hexdigest())\n",
        "            self.end(digest.hexdigest())\n",
        "tests/engine/test_in_order.py::test_a_mark_is_told_once_the_bytes_up_to_it_are_durable",
    ),
    Mutant(
        "BeeGFS's number for no limit is a limit",
        "(None if most is None or most >= UNLIMITED else most)",
        "most",
        "tests/vendors/test_beegfs_texts.py::test_a8_quotas_of_version_8",
    ),
    Mutant(
        "targets count as away where the client has no news of them",
        "    if without_news:\n        targets = {key",
        "    if False:\n        targets = {key",
        "tests/vendors/test_beegfs_recorded.py::test_without_the_management_service_the_client_has_no_news",
    ),
    Mutant(
        "a job waits for another account's job of that number",
        "    if live.uid != staging.uid:\n",
        "    if False:\n",
        "tests/dataset/test_staged_by_another.py::test_no_job_waits_for_what_stages_nothing",
    ),
    Mutant(
        "a controller that was overtaken tries again",
        " or any(step.overtaken for step in left):\n        return None\n",
        ":\n        return None\n",
        "tests/workflow/test_controller_tries.py::test_which_end_is_followed_by_a_further_try",
    ),
    Mutant(
        "a submitted job that does a part of what is wanted is the answer",
        "        return same and {*self.datasets} >= {*wanted.datasets}\n",
        "        return same and bool({*self.datasets} & {*wanted.datasets})\n",
        "tests/cli/test_submit.py::test_a_job_is_the_answer_only_where_it_does_all_that_is_asked_for",
    ),
    Mutant(
        "a job that was requeued is given another release",
        "        return who.cluster, who.job\n",
        "        return who.cluster, who.job, who.restart\n",
        "tests/retention/test_pins.py::test_s32_a_job_is_given_the_same_release_again_also_after_a_requeue",
    ),
    Mutant(
        "an earlier pin is told as a release's last one",
        "            if release not in answer or made > answer[release].at:\n",
        "            if release not in answer:\n",
        "tests/retention/test_gc.py::test_the_last_pin_is_the_latest_of_those_that_gc_noted_and_those_that_stand",
    ),
    Mutant(
        "a step that ends takes back the notice of the run that overtook it",
        "        if standing and standing.notice._replace(writes=self._notice.writes) == self._notice:\n",
        "        if standing:\n",
        "tests/dataset/test_staged_by_another.py::test_a_step_that_ends_leaves_the_notice_of_another_run",
    ),
    Mutant(
        "status puts what needs a person anywhere",
        "key=lambda row: list(KINDS).index(row[0])",
        'key=lambda row: row[1]["dataset"]',
        "tests/look/test_status_table.py::test_rows_fit_and_those_that_need_a_person_come_first",
    ),
    Mutant(
        "a receipt of a step that is given again forgets what it moved",
        '    if before is not None and "moved_bytes" in before and not receipt.get("moved_bytes"):\n',
        '    if before is None and "moved_bytes" in receipt:\n',
        "tests/run/test_read_beside_copy.py::test_what_verify_reads_itself_has_its_own_seconds",
    ),
    Mutant(
        "a server's login page is staged as the file",
        "return self.page_instead if is_page(headers) and not page_name(entry.key) else None",
        "return None",
        "tests/sources/test_web_hrefs.py::test_a_page_at_the_listed_url_is_refused_while_it_is_copied",
    ),
    Mutant(
        "a listed key outside of the prefix loses its beginning",
        "name = key[len(prefix) :] if key.startswith(prefix) else within(key, prefix, bucket.url)",
        "name = key[len(prefix) :]",
        "tests/sources/test_hostile.py::test_a_key_outside_of_the_prefix_is_refused_by_name",
    ),
    Mutant(
        "an FTP listing that its server cut short is whole",
        'return next((line for line in said.split("\\n") if _CUT.search(_PATHS.sub("", line))), "")',
        'return ""',
        "tests/sources/test_ftp.py::test_a_listing_that_its_server_cuts_short_is_refused_with_the_number",
    ),
)
